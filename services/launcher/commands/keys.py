"""`draftmesh keys`."""

from typing import Annotated

import typer

from shared.settings import options

keys = typer.Typer(help="Make API keys for clients of a gateway.", add_completion=False)


@keys.command("new")
def new(
    api_keys_file: options.ApiKeysFile = "",
    name: Annotated[str, typer.Option("--name", help="Name of the key in the file, such as its owner's.")] = "",
) -> None:
    """Print a new API key, once, and add its digest to the file."""
    from shared.process import api_keys

    typer.echo(api_keys.add(api_keys_file, name))
