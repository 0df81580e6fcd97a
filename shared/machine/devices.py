"""Device names as people write them, and the choice of a device: each name means exactly one device, or an error lists
the devices.

ggml's own names differ by backend and release ("CUDA0", "ROCm0", "MTL0", "Metal", "RPC[host:port]"); ours are a kind
and an index: `cpu`, `cuda:0`, `rocm:0`, `vulkan:0`, `metal`, `rpc:0`. `cuda` alone is `cuda:0`. Two backends may list
the same card: both names are valid, and the card counts once. Pure.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from shared.errors import StartError

AUTO: Final = "auto"
CPU: Final = "cpu"

TARGET_OPTION: Final = "--target-device"
DRAFT_OPTION: Final = "--draft-device"
SPLIT_OPTION: Final = "--tensor-split"
MAX_DEVICES: Final = 16  # of one model: llama_max_devices in llama.cpp


@dataclass(frozen=True, slots=True)
class Device:
    """A device as a listing shows it; memory in bytes."""

    name: str  # ggml's own, such as "CUDA0"
    description: str
    kind: str  # "cpu", "gpu", "igpu", "accel"
    memory_free: int
    memory_total: int
    id: str = ""  # the card's PCI address; empty if the backend does not know it


N = TypeVar("N", bound=Device)

_ADDABLE: Final = ("cuda", "vulkan")  # kinds whose backend can be downloaded
_RANK: Final = {"gpu": 0, "igpu": 1}  # an integrated GPU reports the machine's whole memory as its own
_BACKEND: Final = re.compile(r"([A-Za-z]+?)(?::?\d+|\[.*\])?")
_KINDS: Final = {"mtl": "metal", "hip": "rocm"}
_GENERAL: Final = frozenset({"vulkan", "opencl", "webgpu"})  # backends for cards of any maker, slower than the maker's
_ALIKE: Final = 0.1  # two backends report the memory of one card with a relative difference below this


def named(devices: Sequence[N]) -> dict[str, N]:
    """Every device that a model can be placed on, by our name, in ggml's order."""
    names: dict[str, N] = {}
    counts: dict[str, int] = {}
    for device in devices:
        if device.kind == CPU:
            names.setdefault(CPU, device)
        elif device.kind in _RANK:
            kind = kind_of(device.name)
            index = counts.get(kind, 0)
            counts[kind] = index + 1
            names["metal" if kind == "metal" and index == 0 else f"{kind}:{index}"] = device
    return names


def find(name: str, devices: Sequence[N]) -> N | None:
    """The device that a name means, or None; `auto` means none."""
    present = named(devices)
    wanted = name.strip().lower()
    return present.get(wanted) or present.get(f"{wanted}:0") or (present.get("metal") if wanted == "metal:0" else None)


def kind_of(name: str) -> str:
    """The kind in our terms, from our name or ggml's."""
    match = _BACKEND.fullmatch(name)
    kind = match[1].lower() if match else name.lower()
    return _KINDS.get(kind, kind)


def name_of(device: N, devices: Sequence[N]) -> str:
    return next(name for name, candidate in named(devices).items() if candidate is device)


def names_of(some: Sequence[N], devices: Sequence[N]) -> str:
    """Our names of some of `devices` as `--target-device` takes them: `cuda:0,cuda:1`."""
    return ",".join(name_of(device, devices) for device in some)


def listing(devices: Sequence[Device]) -> str:
    """The devices on one line: `cpu, cuda:0 (NVIDIA L4, 22.1 of 24.0 GB free)`."""
    return ", ".join(
        name if name == CPU else f"{name} ({device.description}, {memory(device)})"
        for name, device in named(devices).items()
    )


def memory(device: Device) -> str:
    """Free and total memory for people."""
    return f"{device.memory_free / 1e9:.1f} of {device.memory_total / 1e9:.1f} GB free"


def same_card(one: Device, other: Device) -> bool:
    """Whether two devices, as any processes of one machine list them, are one card.

    Compares the PCI addresses. Without an address, devices of one backend are compared by its names, and devices of two
    backends by description and memory; so two equal cards count as the same.
    """
    if one.kind not in _RANK or other.kind not in _RANK:
        return False
    if one.id and other.id:
        return one.id.lower() == other.id.lower()
    if kind_of(one.name) == kind_of(other.name):
        return one.name == other.name
    larger = max(one.memory_total, other.memory_total)
    return one.description == other.description and abs(one.memory_total - other.memory_total) <= _ALIKE * larger


def among(device: Device, others: Iterable[Device]) -> bool:
    """Whether the device is the same card as one of the others."""
    return any(same_card(device, other) for other in others)


def distinct(devices: Sequence[Device]) -> list[Device]:
    """The devices with each card once: its maker's backend (CUDA, ROCm, Metal) wins over Vulkan."""
    kept: list[Device] = []
    for device in sorted(devices, key=lambda device: kind_of(device.name) in _GENERAL):
        if not among(device, kept):
            kept.append(device)
    return [device for device in devices if any(device is one for one in kept)]


def by_preference(devices: Sequence[Device]) -> list[Device]:
    """The GPUs, each card once, best for a target first: discrete before integrated, then by free memory."""
    gpus = [device for device in distinct(devices) if device.kind in _RANK]
    return sorted(gpus, key=lambda device: (_RANK[device.kind], -device.memory_free))


def for_a_split(devices: Sequence[Device]) -> list[Device]:
    """The cards that share a target unless devices are named, in ggml's order: without integrated GPUs, which slow
    the others."""
    gpus = by_preference(devices)
    return [device for device in devices if any(device is gpu for gpu in gpus if gpu.kind == gpus[0].kind)]


def choose(name: str, devices: Sequence[Device], option: str = TARGET_OPTION) -> Device:
    """The device that `name` means; `auto` is the GPU with most memory free, discrete before integrated, else the CPU.

    Raises `StartError` naming `option` for a device that does not exist.
    """
    wanted = name.strip().lower()
    if wanted == AUTO:
        best = by_preference(devices)
        if best:
            return best[0]
        wanted = CPU
    return find(wanted, devices) or refuse(name, devices, option)


def refuse(name: str, devices: Sequence[Device], option: str, broken: Mapping[str, str] | None = None) -> NoReturn:
    """Raises the `StartError` of a missing device: why, if its backend is `broken`, and which devices there are."""
    kind = kind_of(name.strip().lower())
    reasons = [reason for backend, reason in (broken or {}).items() if kind_of(backend) == kind]
    addable = not reasons and kind in _ADDABLE and all(kind_of(device.name) != kind for device in devices)
    ways = [f"`draftmesh backend add {kind}` may add it"] if addable else []
    here = f"here: {listing(devices) or 'none'}; or auto"
    raise StartError(option, name, "; ".join(["no such device", *reasons, here, *ways]))


def parse_target(name: str, split: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The names in `cuda:0,cuda:1` and their shares from `3,1`; no shares leave the division to llama.cpp.

    Raises `StartError` for what is wrong on any machine: not one share per name, a list with the CPU or `auto`, a name
    twice.
    """
    names = tuple(part.strip().lower() for part in name.split(","))
    shares = parse_tensor_split(split)
    if len(names) > 1 and not {AUTO, CPU}.isdisjoint(names):
        raise StartError(TARGET_OPTION, name, "a list names GPUs only; --gpu-layers leaves the other layers to the CPU")
    if len(set(names)) < len(names):
        raise StartError(TARGET_OPTION, name, "names a device twice")
    if len(names) > MAX_DEVICES:
        raise StartError(TARGET_OPTION, name, f"llama.cpp divides a model over at most {MAX_DEVICES} devices")
    if shares and names == (CPU,):
        raise StartError(SPLIT_OPTION, split, f"divides GPUs, and {TARGET_OPTION} is cpu")
    if shares and names != (AUTO,) and len(shares) != len(names):
        raise StartError(SPLIT_OPTION, split, f"one share per device, and {TARGET_OPTION} names {', '.join(names)}")
    return names, shares


def choose_target(
    name: str, split: str, devices: Sequence[Device], beside: Sequence[Device] = ()
) -> tuple[Device, ...]:
    """The devices of a target; `beside` are the devices of other targets.

    `auto` is the best GPU among those with the fewest other targets, or, with shares, every card in ggml's order.
    Raises `StartError` as `choose` and `parse_target` do, and if the names or shares do not match the cards of this
    machine.
    """
    names, shares = parse_target(name, split)
    if names == (AUTO,) and shares:
        cards = for_a_split(devices)
        if len(cards) != len(shares):
            here = names_of(cards, devices) or "none"
            raise StartError(
                SPLIT_OPTION, split, f"one share per GPU, and here: {here}; or name some by {TARGET_OPTION}"
            )
        return tuple(cards)
    if names == (AUTO,):
        gpus = by_preference(devices) or [choose(CPU, devices)]
        return (min(gpus, key=lambda device: sum(same_card(device, other) for other in beside)),)
    chosen = tuple(choose(one, devices) for one in names)
    if any(among(device, chosen[:index]) for index, device in enumerate(chosen)):
        raise StartError(TARGET_OPTION, name, "names a card twice")
    return chosen


def choose_draft(
    name: str,
    devices: Sequence[Device],
    targets: Sequence[Device],
    drafts: Sequence[Device] = (),
) -> Device:
    """A drafter's device beside the devices of `targets` and of other `drafts`.

    `auto` is the GPU with the fewest drafters that no target uses, or the CPU: a drafter on a target's card would slow
    the target's decodes. Raises `StartError` as `choose` does.
    """
    if name.strip().lower() != AUTO:
        return choose(name, devices, DRAFT_OPTION)
    others = [gpu for gpu in by_preference(devices) if not among(gpu, targets)]
    if not others:
        return choose(CPU, devices, DRAFT_OPTION)
    return min(others, key=lambda device: sum(same_card(device, other) for other in drafts))


def parse_tensor_split(text: str) -> tuple[float, ...]:
    """Shares per GPU from `3,1`; empty text means no split. Raises `StartError` for anything else."""
    if not text.strip():
        return ()
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(math.isfinite(share) and share >= 0 for share in shares) or sum(shares) <= 0:
        raise StartError(SPLIT_OPTION, text, "numbers of at least 0 and not all 0, such as 3,1")
    if len(shares) > MAX_DEVICES:
        raise StartError(SPLIT_OPTION, text, f"llama.cpp divides a model over at most {MAX_DEVICES} devices")
    return shares
