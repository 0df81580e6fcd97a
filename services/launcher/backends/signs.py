"""Signs of GPUs that need no driver's library: names of device files."""

import glob
from collections.abc import Callable, Collection
from typing import Final

from services.launcher.backends import catalogue
from shared.model.hardware import Hardware

_NVIDIA: Final = "/dev/nvidia0"
_RENDER: Final = "/dev/dri/renderD"  # by any kernel driver that can compute: AMD, Intel, others
_AMD: Final = "/dev/kfd"
_PATTERNS: Final = (_NVIDIA, f"{_RENDER}*", _AMD, "/usr/share/vulkan/icd.d/*.json", "/etc/vulkan/icd.d/*.json")


def look() -> list[str]:
    """The paths on this machine that are signs of a GPU or of its driver."""
    return [path for pattern in _PATTERNS for path in sorted(glob.glob(pattern))]


def suggested(paths: Collection[str]) -> str:
    """The backend that suits the GPU of which there are signs; empty if there are none."""
    if _NVIDIA in paths:
        return "cuda"
    return "vulkan" if _AMD in paths or any(path.startswith(_RENDER) for path in paths) else ""


def missing(look_up: Callable[[], Hardware]) -> str:
    """The command that adds a backend for a GPU of this machine that has none, in one sentence; empty without one.

    Calls `look_up` for the devices only if there are signs of a GPU.
    """
    paths = look()
    if not suggested(paths):
        return ""
    here = look_up()
    kinds = {device.kind for device in here.devices}
    return "" if here.broken else hint(paths, kinds, catalogue.offered(catalogue.this_system()))


def hint(paths: Collection[str], kinds: Collection[str], offered: Collection[str]) -> str:
    """The command that adds a backend for the GPU; empty without signs of one, or if `kinds` has a GPU's."""
    backend = suggested(paths)
    if not backend or not {"gpu", "igpu"}.isdisjoint(kinds):
        return ""
    if backend not in offered:
        return "llama.cpp has no backend for the GPU here; docs/backends.md says how to build one in"
    return f"llama.cpp has no backend for the GPU here; `draftmesh backend add {backend}` adds one"


def why_none(backend: str, paths: Collection[str]) -> str:
    """Why a working backend finds no device."""
    if backend == "cuda":
        return (
            "NVIDIA's driver finds no card that it can use (`nvidia-smi` says more)"
            if _NVIDIA in paths
            else "there is no NVIDIA card with a loaded driver (/dev/nvidia0 is missing)"
        )
    drivers = [path for path in paths if path.endswith(".json")]
    if not drivers:
        return "no Vulkan driver is installed (Debian and Ubuntu: mesa-vulkan-drivers; NVIDIA's brings its own)"
    if not suggested(paths):
        return (
            "there is no GPU (/dev/dri has none); Mesa's software device, slower than the CPU itself, counts only with"
            " GGML_VK_VISIBLE_DEVICES=0"
        )
    return "no Vulkan driver here knows this GPU, or this user may not open it (/dev/dri; group render)"
