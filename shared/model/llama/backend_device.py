"""The devices of this llama.cpp: listed for processes that choose, and opened one by one by processes that compute.

Asking for a device's name costs nothing. Asking for its memory costs a context on a GPU, so only `list_all` asks
every device, in a process of its own: run as a program, this prints them as JSON. Other processes ask only the devices
that they open.
"""

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from shared.errors import StartError
from shared.machine import devices
from shared.machine.devices import CPU, Device
from shared.machine.resources import available_memory
from shared.model import hardware
from shared.model.hardware import Hardware
from shared.model.llama import library, plugins
from shared.model.rows import LlamaError

_KINDS: Final = {0: CPU, 1: "gpu", 2: "igpu"}  # ggml_backend_dev_type in ggml-backend.h; the rest are accelerators


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props` of ggml-backend.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("capabilities", ctypes.c_bool * 32),  # some five now; releases add more
    )


@dataclass(frozen=True, slots=True)
class BackendDevice(Device):
    """A device that this process computes on."""

    handle: int = 0
    label: str = ""  # our name of it, such as "cuda:0"

    def plain(self) -> Device:
        """The device without what means something only to this process."""
        return Device(self.name, self.description, self.kind, self.memory_free, self.memory_total, self.id)


def open_device(name: str, option: str) -> BackendDevice:
    """The device of our name, without asking another device or loading another backend.

    Raises `StartError` naming `option` if it is not there, even if it was listed before.
    """
    library.start()
    kind = devices.kind_of(name.strip().lower())
    try:
        for plugin in plugins.installed():
            if devices.kind_of(plugin) == kind:
                plugins.load(plugin)
    except LlamaError as error:
        raise StartError(option, name, str(error)) from None
    plates = list(_unasked(kind))
    found = devices.find(name, plates)
    if found is None:
        here = hardware.look()
        devices.refuse(name, here.devices, option, here.broken)
    return _described(found.handle, devices.name_of(found, plates))


def list_all() -> Hardware:
    """Every device in ggml's order; opens a context on each GPU."""
    library.start()
    broken = {}
    for plugin in plugins.installed():
        try:
            plugins.load(plugin)
        except LlamaError as error:
            broken[plugin] = str(error)
    return Hardware(tuple(_described(handle).plain() for handle in _handles()), broken)


def _handles() -> Iterator[int]:
    for index in range(library.ggml("ggml_backend_dev_count", ctypes.c_size_t)()):
        yield library.ggml("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)(index)


def _unasked(kind: str) -> Iterator[BackendDevice]:
    """The devices of our `kind` with what they tell at no cost."""
    for handle in _handles():
        name = library.ggml("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)(handle).decode()
        if devices.kind_of(name) == kind:
            number = library.ggml("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(handle)
            yield BackendDevice(name, "", _KINDS.get(number, "accel"), 0, 0, handle=handle)


def _described(handle: int, label: str = "") -> BackendDevice:
    properties = _Properties()
    library.ggml("ggml_backend_dev_get_props", None, ctypes.c_void_p, ctypes.c_void_p)(handle, ctypes.byref(properties))
    kind = _KINDS.get(properties.type, "accel")
    free = properties.memory_free
    return BackendDevice(
        name=properties.name.decode(),
        description=properties.description.decode(errors="replace"),
        kind=kind,
        memory_free=min(free, available_memory()) if kind == CPU else free,  # ggml takes all memory for free
        memory_total=properties.memory_total,
        id=(properties.device_id or b"").decode(),
        handle=handle,
        label=label,
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(list_all()))
