"""`draftmesh acl`."""

from pathlib import Path
from typing import Annotated

import typer


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
