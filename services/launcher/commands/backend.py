"""`draftmesh backend`."""

from pathlib import Path
from typing import Annotated

import typer

from services.launcher.display import Display
from shared.settings import options

backend = typer.Typer(
    help="Add support for a GPU to llama.cpp: prebuilt backends, which need no compiler.", add_completion=False
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `draftmesh backend list` calls it: vulkan or cuda.")]


@backend.command("list")
def show(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> int:
    """List the backends that are here, their devices, and those that can be added with what they need."""
    from services.launcher.backends import command

    return command.show(as_json)


@backend.command("add")
def add(
    name: _Name,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="Folder with the packages' files, to add it without a network."),
    ] = None,
    offline: options.Offline = False,
) -> int:
    """Fetch a backend of a pinned release, check that it fits this llama.cpp, and keep it in the user's data folder.

    npm's and pip's own configuration says where the packages are. Continues an earlier download. Its devices are then
    everywhere: --target-device vulkan:0.

    Example: draftmesh backend add vulkan
    """
    from services.launcher.backends import adding

    return adding.add(name.lower(), source, Display.on_stderr())


@backend.command("remove")
def remove(name: _Name) -> int:
    """Delete a backend that was added."""
    from services.launcher.backends import adding

    return adding.remove(name.lower(), Display.on_stderr())
