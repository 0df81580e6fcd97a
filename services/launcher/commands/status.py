"""`draftmesh status`."""

from typing import Annotated

import typer

from services.launcher.commands.fleet_options import Up, redis_of
from shared.settings import options


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
