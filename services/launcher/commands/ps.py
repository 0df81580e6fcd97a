"""`draftmesh ps`."""

from typing import Annotated

import typer

from services.launcher.commands.fleet_options import Up, redis_of
from shared.settings import options


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
