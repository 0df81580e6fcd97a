"""`draftmesh plan`."""

from typing import Annotated

import typer

from services.launcher.commands.fleet_options import Up, redis_of
from shared.model.offload import AUTO
from shared.settings import options


def plan(
    context: typer.Context,
    target_model: options.TargetModel = "default",
    draft_model: options.DraftModels = [],  # noqa: B006
    target_device: options.TargetDevice = "auto",
    draft_device: options.DraftDevices = [],  # noqa: B006
    threads: options.Threads = 0,
    gpu_layers: options.GpuLayers = AUTO,
    tensor_split: options.TensorSplit = "",
    offline: options.Offline = False,
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
        draft_model, draft_device = [], []  # an option of this call wins over the file
    subject = planning.PlanOptions(
        target_model=target_model,
        draft_models=tuple(draft_model),
        target_device=target_device,
        draft_devices=tuple(draft_device),
        threads=threads,
        gpu_layers=gpu_layers,
        tensor_split=tensor_split,
        temperatures=tuple(dict.fromkeys(temperature)),
        texts=tuple(prompt) or planning.TEXTS,
        tokens=tokens,
        round_trip_ms=rtt,
        redis=redis_of(context, redis, up) if redis or fleet or up is not None else "",
        demo_pair=demo_pair,
    )
    return planning.run(subject, as_json)
