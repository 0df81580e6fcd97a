"""`draftmesh logs`."""

from typing import Annotated

import typer

from services.launcher.commands.fleet_options import Up
from shared.settings.options import Level


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

    return shown.run(
        shown.LogsOptions(name=name, up=up, follow=follow, count=lines, level=level, as_json=as_json),
    )
