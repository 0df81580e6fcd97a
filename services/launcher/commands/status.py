"""`draftmesh status`."""

from typing import Annotated

import typer

from shared import options


def status(
    redis: options.Redis = options.DEFAULT_REDIS,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """Show the fleet: processes, acceptance, speed, and why a request is not speculating."""
    from services.launcher import status as shown

    return shown.run(redis, as_json)
