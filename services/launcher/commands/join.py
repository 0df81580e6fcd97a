"""`draftmesh join`."""

from typing import Annotated

import typer

from services.launcher.commands.services import become, same_file
from shared import options


def join(
    context: typer.Context,
    redis_url: Annotated[str, typer.Argument(help="The fleet's Redis, such as redis://host:6379/0.")],
    draft_model: options.DraftModel = "",
    draft_device: options.DraftDevice = "auto",
    threads: options.Threads = 0,
    ctx: options.ContextSize = 0,
    parallel: options.Parallel = 8,
    gpu_layers: options.GpuLayers = -1,
    offline: options.Offline = False,
    log_level: options.LogLevel = options.Level.INFO,
) -> None:
    """Let this machine guess ahead for a fleet: a drafter on the fleet's Redis."""
    arguments = []
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        # What the user did not write is the drafter's to decide; environment twins it reads itself.
        passed_on = parameter.expose_value and parameter.name != "redis_url"
        if passed_on and source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            arguments += [parameter.opts[0], str(context.params[str(parameter.name)])]
    become("drafter", arguments, {"DRAFTMESH_REDIS": redis_url, **same_file(context)})
