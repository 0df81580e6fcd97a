"""The devices that this build of llama.cpp can see."""

import ctypes
from dataclasses import dataclass

from shared.devices import CPU, available_memory
from shared.llama import library, plugins

_KINDS = {0: CPU, 1: "gpu", 2: "igpu"}  # ggml_backend_dev_type in ggml-backend.h; the rest are accelerators


@dataclass(frozen=True, slots=True)
class BackendDevice:
    """A device that this build of llama.cpp can see; memory in bytes."""

    handle: int
    name: str  # ggml's own name, e.g. "CUDA0"
    description: str
    kind: str  # "cpu", "gpu", "igpu", "accel"
    memory_free: int
    memory_total: int


def backend_devices() -> list[BackendDevice]:
    """Every ggml device in ggml's order."""
    library.start()
    for name in plugins.installed():
        plugins.load(name)
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
    return devices
