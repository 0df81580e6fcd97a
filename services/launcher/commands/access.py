"""The commands that make keys and passwords."""

from pathlib import Path
from typing import Annotated

import typer

from shared.errors import StartError
from shared.settings import options


def acl(
    address: Annotated[str, typer.Argument(help="Redis address that the services use, such as redis://host:6379/0.")],
    folder: Annotated[Path, typer.Argument(help="Folder for the files: users.acl, and USER.env per user.")],
    machine: Annotated[
        list[str],
        typer.Option(
            "--machine",
            metavar="NAME",
            help="Also make a user for this machine that drafts, drafter-NAME. Repeat.",
        ),
    ] = [],  # noqa: B006
    revoke: Annotated[
        list[str],
        typer.Option(
            "--revoke",
            metavar="NAME",
            help="With --update: remove the user of this machine. Repeat.",
        ),
    ] = [],  # noqa: B006
    update: Annotated[
        bool, typer.Option("--update", help="Write the rights of this release anew; passwords and other users stay.")
    ] = False,
) -> None:
    """Make a Redis user for each service, with the least rights that it needs and a password of its own, and one for
    whoever runs the server (admin).

    Give users.acl to the server (aclfile), and each service the variable in its file. A running server reads a changed
    file when the admin says ACL LOAD, and then closes the connections of users that are gone.
    """
    from services.launcher.fleet import acl as users

    if revoke and not update:
        raise StartError("--revoke", revoke[0], "removes a user of files that exist; add --update")
    written = users.update(folder, address, machine, revoke) if update else users.write(folder, address, machine)
    for file in written:
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
