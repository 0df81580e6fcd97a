"""The commands that make keys and passwords."""

from pathlib import Path
from typing import Annotated

import typer

from shared.settings import options


def acl(
    address: Annotated[str, typer.Argument(help="Redis address that the services use, such as redis://host:6379/0.")],
    folder: Annotated[Path, typer.Argument(help="Folder for the files: users.acl, and SERVICE.env per service.")],
) -> None:
    """Make a Redis user for each service, with the least rights that it needs and a password of its own.

    Give users.acl to the server (aclfile), and each service the variable in its file.
    """
    from services.launcher.fleet import acl as users

    for file in users.write(folder, address):
        typer.echo(file)


keys = typer.Typer(help="Make API keys for clients of a gateway.", add_completion=False)


@keys.command("new")
def new(
    api_keys_file: options.ApiKeysFile = "",
    name: Annotated[str, typer.Option("--name", help="Name of the key in the file, such as its owner's.")] = "",
) -> None:
    """Print a new API key, once, and add its digest to the file."""
    from shared.process import api_keys

    typer.echo(api_keys.add(api_keys_file, name))
