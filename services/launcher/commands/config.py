"""`draftmesh config`."""

from typing import Annotated

import typer

config = typer.Typer(help="Show and check what draftmesh.toml and the environment say.", add_completion=False)


@config.command("show", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def show(
    context: typer.Context,
    command: Annotated[
        str,
        typer.Argument(help="Command such as up, gateway or keys.new, with options to try; by default all commands."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """Show a command's options: their values, and where each comes from. Keys and passwords stay hidden.

    Without COMMAND: the options of all commands that do not have their defaults.
    """
    from services.launcher.look import config_show

    return config_show.show(context.obj, command, context.args, as_json)


@config.command("path")
def path(context: typer.Context) -> int:
    """Print which file is read; exit status 1 if there is none."""
    from services.launcher.look import config_show

    return config_show.path(context.obj)


@config.command("check")
def check(context: typer.Context) -> int:
    """Check every key and value of the file; exit status 2 if one is wrong."""
    from services.launcher.look import config_show

    return config_show.check(context.obj)
