"""Where a target's layers will go when a verifier starts with the same options; drafters decide for themselves."""

from collections.abc import Sequence
from pathlib import Path

from shared import devices, machine, models, offload
from shared.devices import Device
from shared.memory import USUAL_CONTEXT, Layout
from shared.offload import Offload


def offload_target(
    path: Path,
    spec: str,
    target: Sequence[Device],
    present: Sequence[Device],
    *,
    gpu_layers: str,
    ctx: int = 0,
    parallel: int = 8,
) -> Offload:
    """The layers of the model in `path`, as people named it `spec`, on the devices of one `target`.

    Raises `StartError` if the file is not readable.
    """
    sizes = models.sizes(path, spec, "--target-model")
    name = devices.names_of(target, present)
    context = ctx or min(sizes.context or USUAL_CONTEXT, USUAL_CONTEXT)
    free = offload.room(target)
    layout = offload.windows_or_all(sizes, Layout(context=context, parallel=parallel), name, free)
    return offload.place(sizes, layout, gpu_layers, name, free, machine.available_memory())
