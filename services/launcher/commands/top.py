"""`draftmesh top`."""

import typer

from services.launcher.commands.fleet_options import Up, redis_of
from shared.settings import options


def top(context: typer.Context, redis: options.Redis = options.DEFAULT_REDIS, up: Up = None) -> int:
    """Watch the fleet live: speed, processes, what drafters add, running requests; q or Ctrl-C quits.

    If the output is not a terminal, it prints one frame. Exit status: 0; 2 if Redis does not answer.
    """
    from services.launcher.look import top as live

    return live.run(redis_of(context, redis, up))
