"""The commands that say what drafts would bring here."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from services.launcher.commands.fleet_options import Up, redis_of
from services.launcher.settings.setup_options import SetupOptions
from services.launcher.settings.up_options import DoctorOptions, ModelOptions


def setup(options: SetupOptions) -> int:
    """Look at this machine, propose a split of target and drafters over its devices, and write draftmesh.toml.

    It measures what it proposes, and says what to expect. If drafts would not pay, it says so and proposes none.
    `draftmesh up` then starts what the file says.
    """
    from services.launcher.forecast import setup as proposing

    return proposing.run(options, not options.yes and sys.stdin.isatty() and sys.stderr.isatty())


def doctor(options: DoctorOptions) -> int:
    """Check Redis, devices, models and vocabularies, and measure whether speculation pays here."""
    from services.launcher.forecast.doctor import run

    return run(options)


def plan(
    context: typer.Context,
    models: ModelOptions,
    temperature: Annotated[
        list[float],
        typer.Option("--temperature", help="Temperature of the probe; repeat for several.", min=0.0, max=2.0),
    ] = [0.0, 1.0],  # noqa: B006
    prompt: Annotated[
        list[str], typer.Option("--prompt", help="A text that the probe continues; repeat for several.")
    ] = [],  # noqa: B006
    tokens: Annotated[
        int, typer.Option("--tokens", help="Tokens of the probe, per text and temperature.", min=4, max=2048)
    ] = 48,
    rtt: Annotated[
        float | None,
        typer.Option(
            "--rtt", help="Round trip to the drafter in ms; by default 0.5, or as a fleet measured it.", min=0.0
        ),
    ] = None,
    demo_pair: Annotated[bool, typer.Option("--demo-pair", help="Measure the demo's models.")] = False,
    redis: Annotated[
        str, typer.Option("--redis", help="Use the measurements of the fleet at this Redis instead.")
    ] = "",
    fleet: Annotated[
        bool, typer.Option("--fleet", help="The same for the fleet of the `up` that runs on this machine.")
    ] = False,
    up: Up = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """Forecast the speed-up for models and devices, and say what would help most."""
    from services.launcher.forecast import planning

    source = context.get_parameter_source("draft_model")
    if (demo_pair or redis) and source is not None and source.name != "COMMANDLINE":
        models = replace(models, draft_model=[], draft_device=[])  # an option of this call wins over the file
    subject = planning.PlanOptions(
        models=models,
        temperatures=tuple(dict.fromkeys(temperature)),
        texts=tuple(prompt) or planning.TEXTS,
        tokens=tokens,
        round_trip_ms=rtt,
        redis=redis_of(context, redis, up) if redis or fleet or up is not None else "",
        demo_pair=demo_pair,
    )
    return planning.run(subject, as_json)
