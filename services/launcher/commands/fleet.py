"""The commands that start fleets or let the system start them, and the services, which read their own options."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from services.launcher.commands.fleet_options import Up
from services.launcher.fleet.child import service_command
from services.launcher.settings.up_options import UpOptions
from shared.settings import options, settings_file
from shared.settings.drafter_options import DraftOptions
from shared.settings.options_struct import declarations, words


def up(context: typer.Context, options: UpOptions) -> int:
    """Start everything on this machine: Valkey, gateway, verifier, drafters."""
    from services.launcher.fleet.up import run
    from services.launcher.settings.service_options import hand_down

    return run(options, hand_down(context.obj.file if context.obj else None, declarations(UpOptions)))


def join(
    context: typer.Context,
    redis_url: Annotated[
        str,
        typer.Argument(
            help="The fleet's Redis, as `up --lan` prints it: redis://host:7072/0. Without it, join looks for a"
            " fleet in this network.",
            show_default=False,
        ),
    ] = "",
    token_file: Annotated[
        str,
        typer.Option(
            "--token-file",
            envvar="DRAFTMESH_TOKEN_FILE",
            help="File with this machine's token, as `up --lan` and `invite` print it; else the variable"
            " DRAFTMESH_TOKEN, else join asks.",
        ),
    ] = "",
    draft: DraftOptions = DraftOptions(),
    log_level: options.LogLevel = options.Level.INFO,
) -> int:
    """Let this machine guess ahead for a fleet, and say what it adds. Ctrl-C leaves the fleet without losing any
    request."""
    from services.launcher.fleet.join import run

    arguments: list[str] = []
    for key in (*declarations(DraftOptions), "log_level"):
        source = context.get_parameter_source(key)
        # The drafter decides what the user did not give, and reads environment variables itself.
        if key != "draft_model" and source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            arguments += words(key, context.params[key])
    return run(redis_url, token_file, draft.draft_model, arguments, _same_file(context))


def invite(
    machine: Annotated[str, typer.Argument(metavar="NAME", help="Name of the machine, such as laptop.")],
    revoke: Annotated[bool, typer.Option("--revoke", help="Lock this machine out instead.")] = False,
    up: Up = None,
) -> None:
    """Let one more machine join an `up --lan`: print a token for it, which can be revoked alone."""
    from services.launcher.fleet import machines

    if revoke:
        machines.revoke(machine, up, typer.echo)
    else:
        machines.invite(machine, up, typer.echo)


def gateway(context: typer.Context) -> None:
    """The HTTP front (its own options: draftmesh gateway --help)."""
    _become("gateway", context)


def verifier(context: typer.Context) -> None:
    """The process that owns the target model (draftmesh verifier --help)."""
    _become("verifier", context)


def drafter(context: typer.Context) -> None:
    """A process that guesses ahead (draftmesh drafter --help)."""
    _become("drafter", context)


def _same_file(context: typer.Context) -> dict[str, str]:
    """The variable that makes a service read the `draftmesh.toml` found and checked here, or no file."""
    file = context.obj.file if context.obj else None
    return {settings_file.VARIABLE: str(file.path) if file else settings_file.OFF}


def _become(service: str, context: typer.Context) -> NoReturn:
    """Turn this process into a service: signals and exit status are then the service's own."""
    command = (*service_command(service), *context.args)
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, **_same_file(context)})


service = typer.Typer(help="Let systemd or launchd run draftmesh for this user.", add_completion=False)

_Command = Annotated[str, typer.Argument(help="up, or join with its address and options.")]


@service.command("install", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def install(
    context: typer.Context,
    command: _Command = "up",
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
def uninstall(command: _Command = "up") -> int:
    """Stop the service and remove its file."""
    from services.launcher.fleet import service as services

    return services.uninstall(command)
