"""The commands that show a running fleet, and the settings in force."""

from typing import Annotated

import typer

from services.launcher.commands.fleet_options import Up, redis_of
from shared.settings import options
from shared.settings.options import Level


def status(
    context: typer.Context,
    redis: options.Redis = options.DEFAULT_REDIS,
    up: Up = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it as JSON: processes, verifiers, drafters, requests.")
    ] = False,
) -> int:
    """Show the fleet: processes, acceptance, speed, and why a request is not speculating.

    Without --redis it is the fleet of the `up` that runs on this machine. Exit status: 0; 1 if no process is there;
    2 if Redis does not answer or an option is wrong.

    Example: draftmesh status --json | jq -r '.requests[] | select(.reason != "") | .reason'
    """
    from services.launcher.look import status as shown

    return shown.run(redis_of(context, redis, up), as_json)


def ps(
    context: typer.Context,
    redis: options.Redis = options.DEFAULT_REDIS,
    up: Up = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON array: `processes` of `status --json`.")
    ] = False,
) -> int:
    """List the fleet's processes, one line each: name, kind, model, device, load, tokens per second, age.

    Exit status as for `status`: 0; 1 if no process is there; 2 if Redis does not answer.
    """
    from services.launcher.look import ps as listed

    return listed.run(redis_of(context, redis, up), as_json)


def top(context: typer.Context, redis: options.Redis = options.DEFAULT_REDIS, up: Up = None) -> int:
    """Watch the fleet live: speed, processes, what drafters add, running requests; q or Ctrl-C quits.

    If the output is not a terminal, it prints one frame. Exit status: 0; 2 if Redis does not answer.
    """
    from services.launcher.look import top as live

    return live.run(redis_of(context, redis, up))


def logs(
    name: Annotated[
        str,
        typer.Argument(
            help="A process, or the beginning of several names: gateway, verifier, drafter. By default all."
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines as they come, until `up` ends.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last lines to print.", min=0)] = 200,
    level: Annotated[
        Level, typer.Option("--level", help="The least important lines to show.", case_sensitive=False)
    ] = Level.DEBUG,
    as_json: Annotated[bool, typer.Option("--json", help="Print each line as a JSON object with its process.")] = False,
    up: Up = None,
) -> int:
    """Show what the processes of the running `up` log, merged by time; after a failure, of the last one.

    Lines of other programs are shown unchanged; they count as info, unless they say that they are errors. Exit status:
    0; 1 if there are no logs; 2 for a name that no process has.

    Services run by systemd log to its journal: journalctl -u 'draftmesh-*' -f; in containers: docker compose logs -f.

    Example: draftmesh logs verifier --level warning -f
    """
    from services.launcher.look import logs as shown

    return shown.run(name, up, follow=follow, count=lines, level=level, as_json=as_json)


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
