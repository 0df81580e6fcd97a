"""Device names as people write them: each name means exactly one device that is there, or an error lists what is.

ggml's own names differ by backend and release ("CUDA0", "ROCm0", "MTL0", "Metal", "RPC[host:port]"); ours are a kind
and an index: `cpu`, `cuda:0`, `rocm:0`, `vulkan:0`, `metal`, `rpc:0`. `cuda` alone is `cuda:0`. Also divides the CPU's
cores among processes. Choosing is pure; only what is `available_` asks the system.
"""

import math
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

from shared.errors import StartError

AUTO: Final = "auto"
CPU: Final = "cpu"
BROKEN: Final = "broken"  # the kind of what stands for a backend that cannot be used; its description says why


class Device(Protocol):
    """What choosing needs to know of a device; `shared.llama.backend_device.BackendDevice` has it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def memory_free(self) -> int: ...
    @property
    def memory_total(self) -> int: ...


D = TypeVar("D", bound=Device)

ADDABLE: Final = ("cuda", "vulkan")  # kinds whose backend can be fetched

_RANK: Final = {"gpu": 0, "igpu": 1}  # an integrated GPU reports the machine's whole memory as its own
_BACKEND: Final = re.compile(r"([A-Za-z]+?)(?:\d+|\[.*\])?")
_KINDS: Final = {"mtl": "metal", "hip": "rocm"}


def named(devices: Sequence[D]) -> dict[str, D]:
    """Every device that a model can be placed on, by our name, in ggml's order."""
    names: dict[str, D] = {}
    counts: dict[str, int] = {}
    for device in devices:
        if device.kind == CPU:
            names.setdefault(CPU, device)
        elif device.kind in _RANK:
            kind = _kind(device.name)
            index = counts.get(kind, 0)
            counts[kind] = index + 1
            names["metal" if kind == "metal" and index == 0 else f"{kind}:{index}"] = device
    return names


def name_of(device: D, devices: Sequence[D]) -> str:
    """Our name of one of `devices`."""
    return next(name for name, candidate in named(devices).items() if candidate is device)


def listing(devices: Sequence[D]) -> str:
    """What is there, on one line: `cpu, cuda:0 (NVIDIA L4, 22.1 of 24.0 GB free)`."""
    return ", ".join(
        name if name == CPU else f"{name} ({device.description}, {memory(device)})"
        for name, device in named(devices).items()
    )


def memory(device: Device) -> str:
    """Free and total memory for people."""
    return f"{device.memory_free / 1e9:.1f} of {device.memory_total / 1e9:.1f} GB free"


def choose(name: str, devices: Sequence[D], option: str = "--target-device") -> D:
    """The device that `name` means; `auto` is the GPU with most memory free, discrete before integrated, else the CPU.

    Raises `StartError` naming `option` for anything that is not there.
    """
    present = named(devices)
    wanted = name.strip().lower()
    if wanted == AUTO:
        best = by_preference(present)
        if best:
            return best[0]
        wanted = CPU
    device = (
        present.get(wanted) or present.get(f"{wanted}:0") or (present.get("metal") if wanted == "metal:0" else None)
    )
    if device is None:
        raise StartError(option, name, f"no such device; {_absence(_kind(wanted.partition(':')[0]), devices)}")
    return device


def _absence(kind: str, devices: Sequence[Device]) -> str:
    """What there is, and why there is no device of this kind as far as is known."""
    reasons = [device.description for device in devices if device.kind == BROKEN and _kind(device.name) == kind]
    if not reasons and kind in ADDABLE and not any(name.partition(":")[0] == kind for name in named(devices)):
        reasons = [f"`draftmesh backend add {kind}` may bring it"]
    return "; ".join([f"here: {listing(devices) or 'none'}", "or auto", *reasons])


def choose_target(name: str, devices: Sequence[D], targets: Sequence[D], option: str = "--target-device") -> D:
    """The device of one more target beside `targets`; `auto` is the best GPU of those with the fewest of them.

    Raises `StartError` as `choose` does.
    """
    gpus = by_preference(named(devices))
    if name.strip().lower() != AUTO or not gpus:
        return choose(name, devices, option)
    return min(gpus, key=lambda device: sum(device is other for other in targets))


def choose_draft(
    name: str, devices: Sequence[D], targets: Sequence[D], drafts: Sequence[D] = (), option: str = "--draft-device"
) -> D:
    """A drafter's device beside the `targets` and other `drafts`.

    `auto` is the GPU with the fewest drafters that is no target's, or the CPU: a drafter that shares a target's device
    slows the decode it is meant to save. Raises `StartError` as `choose` does.
    """
    if name.strip().lower() != AUTO:
        return choose(name, devices, option)
    others = [gpu for gpu in by_preference(named(devices)) if not any(gpu is target for target in targets)]
    if not others:
        return choose(CPU, devices, option)
    return min(others, key=lambda device: sum(device is other for other in drafts))


def parse_tensor_split(text: str, option: str = "--tensor-split") -> tuple[float, ...]:
    """Shares per GPU from `3,1`; empty text means no split. Raises `StartError` for anything else."""
    if not text.strip():
        return ()
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(math.isfinite(share) and share >= 0 for share in shares) or sum(shares) <= 0:
        raise StartError(option, text, "numbers of at least 0 and not all 0, such as 3,1")
    return shares


def divide_threads(cores: int, target: bool, drafters: int) -> tuple[int, list[int]]:
    """Threads for the target and for each of `drafters` on the CPU, so that they do not fight for cores.

    `target` says whether the target computes on the CPU; if not, one thread feeds its device and the drafters have
    the cores. Otherwise the drafters share a quarter: a draft model is small, and it is the target whose decodes
    are waited for. Nobody gets less than one thread, so only more processes than cores overlap.
    """
    if not drafters:
        return (max(1, cores) if target else 1), []
    shared = max(drafters, cores // 4) if target else max(drafters, cores)
    each, rest = divmod(shared, drafters)
    threads = [each + (index < rest) for index in range(drafters)]
    return (max(1, cores - shared) if target else 1), threads


def available_cores() -> int:
    """Cores this process may use: its affinity where the system has one, and a container's CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else (os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, math.ceil(int(quota) / int(period))))


def available_memory() -> int:
    """Bytes that processes may still take without swapping, as far as the system tells: Linux does."""
    amounts = [sys.maxsize]
    with suppress(OSError):
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        amounts += [int(match[1]) * 1024] if match else []
    with suppress(OSError, ValueError):  # a container's limit may be "max"
        amounts.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(amounts)


def _kind(name: str) -> str:
    match = _BACKEND.fullmatch(name)
    kind = match[1].lower() if match else name.lower()
    return _KINDS.get(kind, kind)


def by_preference(present: dict[str, D]) -> list[D]:
    """The GPUs, best for a target first: discrete before integrated, then by free memory."""
    gpus = [device for device in present.values() if device.kind in _RANK]
    return sorted(gpus, key=lambda device: (_RANK[device.kind], -device.memory_free))
