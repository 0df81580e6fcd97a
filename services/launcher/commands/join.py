"""`draftmesh join`."""

from typing import Annotated, Final

import typer

from services.launcher.commands.services import same_file
from shared.model.offload import AUTO
from shared.settings import options

_OURS: Final = ("redis_url", "token", "draft_model")


def join(
    context: typer.Context,
    redis_url: Annotated[
        str,
        typer.Argument(
            help="The fleet's Redis, as `up --lan` prints it: redis://drafter:TOKEN@host:7072/0. Without it, join"
            " looks for a fleet in this network.",
            show_default=False,
        ),
    ] = "",
    token: Annotated[
        str,
        typer.Option(
            "--token", envvar="DRAFTMESH_TOKEN", help="Join token that `up --lan` prints, if the address has none."
        ),
    ] = "",
    draft_model: options.DraftModel = "",
    draft_device: options.DraftDevice = "auto",
    threads: options.Threads = 0,
    ctx: options.ContextSize = 0,
    parallel: options.Parallel = 8,
    gpu_layers: options.GpuLayers = AUTO,
    offline: options.Offline = False,
    log_level: options.LogLevel = options.Level.INFO,
) -> int:
    """Let this machine guess ahead for a fleet, and say what it adds. Ctrl-C leaves the fleet without losing any
    request."""
    from services.launcher.fleet.join import JoinOptions, run

    arguments = []
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        # The drafter decides what the user did not give, and reads environment variables itself.
        passed_on = parameter.expose_value and parameter.name not in _OURS
        if passed_on and source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            arguments += [parameter.opts[0], str(context.params[str(parameter.name)])]
    return run(
        JoinOptions(
            url=redis_url,
            token=token,
            draft_model=draft_model,
            arguments=arguments,
            environment=same_file(context),
        )
    )
