"""Decides where models compute: their devices, a target's layers, and the threads of each. Pure but for
`offload_target`.

Drafters decide for themselves which of their layers a GPU takes.
"""

from collections.abc import Sequence
from pathlib import Path

from shared.machine import devices, resources, threads
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


def divide(asked: int, cores: int, on_cpu: Sequence[bool], drafts: Sequence[Device]) -> tuple[list[int], list[int]]:
    """Threads for each target and each drafter; `on_cpu` says of each target whether the CPU computes layers of it.

    `asked` (0: a fair share) is for every target, and drafters get the rest. Targets on the CPU share alike; one
    thread feeds a GPU.
    """
    drafts_on_cpu = [draft.kind == devices.CPU for draft in drafts]
    if asked:
        shares = [asked] * sum(on_cpu)
        draft_shares = threads.divide(max(1, cores - asked * len(on_cpu)), 0, sum(drafts_on_cpu))[1]
    else:
        shares, draft_shares = threads.divide(cores, sum(on_cpu), sum(drafts_on_cpu))
    left, draft_left = iter(shares), iter(draft_shares)
    return (
        [next(left) if computes else asked or 1 for computes in on_cpu],
        [next(draft_left) if computes else 1 for computes in drafts_on_cpu],
    )
