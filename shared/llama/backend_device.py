"""The devices that this build of llama.cpp can see."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from shared.devices import BROKEN, CPU, available_memory
from shared.llama import library, plugins

logger = structlog.get_logger()

_KINDS = {0: CPU, 1: "gpu", 2: "igpu"}  # ggml_backend_dev_type in ggml-backend.h; the rest are accelerators


@dataclass(frozen=True, slots=True)
class BackendDevice:
    """A device that this build of llama.cpp can see; memory in bytes."""

    handle: int
    name: str  # ggml's own name, e.g. "CUDA0"
    description: str
    kind: str  # "cpu", "gpu", "igpu", "accel"; "broken": a backend that cannot be used, and the description says why
    memory_free: int
    memory_total: int


def warn_of_broken(devices: Sequence[BackendDevice]) -> None:
    """Log a line for each backend that cannot be used."""
    for device in devices:
        if device.kind == BROKEN:
            logger.warning("backend_unusable", backend=device.name, problem=device.description)


def backend_devices() -> list[BackendDevice]:
    """Every ggml device in ggml's order, then one for each backend that cannot be used."""
    library.start()
    problems = plugins.load_installed()
    devices = []
    for index in range(library.ggml("ggml_backend_dev_count", ctypes.c_size_t)()):
        handle = library.ggml("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory = library.ggml("ggml_backend_dev_memory", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        memory(handle, ctypes.byref(free), ctypes.byref(total))
        kind = _KINDS.get(library.ggml("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(handle), "accel")
        devices.append(
            BackendDevice(
                handle=handle,
                name=library.ggml("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)(handle).decode(),
                description=library.ggml("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)(
                    handle
                ).decode(),
                kind=kind,
                # ggml takes all of the machine's memory for free.
                memory_free=min(free.value, available_memory()) if kind == CPU else free.value,
                memory_total=total.value,
            )
        )
    return devices + [BackendDevice(0, name, problem, BROKEN, 0, 0) for name, problem in problems.items()]
