"""`draftmesh service`."""

from typing import Annotated

import typer

service = typer.Typer(help="Let systemd or launchd run draftmesh for this user.", add_completion=False)

Command = Annotated[str, typer.Argument(help="up, or join with its address and options.")]


@service.command("install", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def install(
    context: typer.Context,
    command: Command = "up",
    show: Annotated[bool, typer.Option("--print", help="Print the file and the commands; write nothing.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Also start it, now and at every login.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that says something else.")] = False,
) -> int:
    """Write a systemd unit or a launchd agent that runs `draftmesh up` with the draftmesh.toml that is read here.

    It starts nothing without --now. Options after COMMAND go to that command. Example: draftmesh service install join
    redis://host:7072/0 --draft-model hf:user/model-GGUF:Q8_0
    """
    from services.launcher.fleet import service as services

    return services.install(context.obj, command, context.args, show, now, force)


@service.command("uninstall")
def uninstall(command: Command = "up") -> int:
    """Stop the service and remove its file."""
    from services.launcher.fleet import service as services

    return services.uninstall(command)
