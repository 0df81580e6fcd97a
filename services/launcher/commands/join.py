"""`draftmesh join`."""

from typing import Annotated

import typer

from services.launcher.commands.services import same_file
from shared.settings import options
from shared.settings.drafter_options import DraftOptions
from shared.settings.options_struct import declarations, words


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
    draft: DraftOptions = DraftOptions(),
    log_level: options.LogLevel = options.Level.INFO,
) -> int:
    """Let this machine guess ahead for a fleet, and say what it adds. Ctrl-C leaves the fleet without losing any
    request."""
    from services.launcher.fleet.join import JoinOptions, run

    arguments: list[str] = []
    for key in (*declarations(DraftOptions), "log_level"):
        source = context.get_parameter_source(key)
        # The drafter decides what the user did not give, and reads environment variables itself.
        if key != "draft_model" and source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            arguments += words(key, context.params[key])
    return run(
        JoinOptions(
            url=redis_url,
            token=token,
            draft_model=draft.draft_model,
            arguments=arguments,
            environment=same_file(context),
        )
    )
