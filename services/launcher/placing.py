"""Where a target's layers will go when a verifier starts with the same options; drafters decide for themselves."""

from collections.abc import Sequence
from pathlib import Path

from shared import devices, models, placement
from shared.devices import Device
from shared.memory import USUAL_CONTEXT, Layout
from shared.placement import Placement


def place_target(
    path: Path,
    spec: str,
    device: Device,
    present: Sequence[Device],
    *,
    gpu_layers: str,
    tensor_split: str = "",
    ctx: int = 0,
    parallel: int = 8,
) -> Placement:
    """The place of the target in `path`, as people named it `spec`. Raises `StartError` if it is not readable."""
    sizes = models.sizes(path, spec, "--target-model")
    name = devices.name_of(device, present)
    context = ctx or min(sizes.context or USUAL_CONTEXT, USUAL_CONTEXT)
    free = placement.room([one for one in present if one.kind != devices.CPU] if tensor_split else [device])
    layout = placement.windows_or_all(sizes, Layout(context=context, parallel=parallel), name, free)
    here = devices.available_memory()
    return placement.place(sizes, layout, gpu_layers, name, free, here)
