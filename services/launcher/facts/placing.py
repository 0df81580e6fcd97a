"""Decides where models compute: their devices, a target's layers, and the threads of each. Pure but for
`offload_target`.

Drafters decide for themselves which of their layers a GPU takes.
"""

from collections.abc import Sequence
from pathlib import Path

from shared.machine import devices, resources
from shared.machine.devices import Device
from shared.model import model_source, offload
from shared.model.memory import USUAL_CONTEXT, Layout
from shared.model.offload import Offload


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
    """The layers of the model in `path`, which the user called `spec`, on the devices of one `target`.

    Raises `StartError` if the file is not readable.
    """
    sizes = model_source.sizes(path, spec, "--target-model")
    name = devices.names_of(target, present)
    context = ctx or min(sizes.context or USUAL_CONTEXT, USUAL_CONTEXT)
    free = offload.room(target)
    layout = offload.windows_or_all(sizes, Layout(context=context, parallel=parallel), name, free)
    return offload.place(sizes, layout, gpu_layers, name, free, resources.available_memory())


def place_targets(given: Sequence[str], split: str, count: int, present: Sequence[Device]) -> list[tuple[Device, ...]]:
    """The devices of `count` targets; those beyond the `given` ones are placed by `auto`. `split` divides each."""
    targets: list[tuple[Device, ...]] = []
    for index in range(count):
        beside = [device for target in targets for device in target]
        targets.append(devices.choose_target(_asked(given, index), split, present, beside))
    return targets


def place_drafts(
    given: Sequence[str], count: int, present: Sequence[Device], targets: Sequence[Sequence[Device]]
) -> list[Device]:
    """The devices of `count` drafters beside the targets; those beyond the `given` ones are placed by `auto`."""
    drafts: list[Device] = []
    taken = [device for target in targets for device in target]
    for index in range(count):
        drafts.append(devices.choose_draft(_asked(given, index), present, taken, drafts))
    return drafts


def _asked(given: Sequence[str], index: int) -> str:
    return given[index] if index < len(given) else devices.AUTO


def threads(cores: int, on_cpu: bool, asked: int = 0) -> int:
    """The threads of a model while nobody else computes: those `asked` for, else all cores; one feeds a GPU."""
    return asked or (cores if on_cpu else 1)


def takes_turns(target: Sequence[Device], on_cpu: bool, draft: Device) -> bool:
    """Whether a draft model computes where the target does; `on_cpu`: the CPU computes layers of the target."""
    return on_cpu if draft.kind == devices.CPU else draft in target
