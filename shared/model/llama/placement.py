"""From `--target-device` and `--tensor-split`, or `--draft-device`, to devices that are open, and no others."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from shared.errors import StartError
from shared.machine import devices
from shared.machine.devices import AUTO, CPU, Device
from shared.model import hardware
from shared.model.llama.backend_device import BackendDevice, open_device

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a model: the CPU, or GPUs in the order of their shares (none: llama.cpp divides it)."""

    devices: tuple[BackendDevice, ...]
    shares: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """As `--target-device` takes it."""
        return ",".join(device.label for device in self.devices)

    @property
    def gpus(self) -> tuple[BackendDevice, ...]:
        """Empty on the CPU."""
        return tuple(device for device in self.devices if device.kind != CPU)

    def on_cpu(self, gpu_layers: str) -> bool:
        """Whether the CPU computes any of the model, judged by `--gpu-layers` before the model is known."""
        return not self.gpus or gpu_layers.isdigit()

    @property
    def description(self) -> str:
        return ", ".join(device.description for device in self.devices)


def look() -> tuple[Device, ...]:
    """The devices of this machine; logs a backend that cannot be used, and still lists the other devices."""
    here = hardware.look()
    for backend, problem in here.broken.items():
        logger.warning("backend_unusable", backend=backend, problem=problem)
    return here.devices


def place_target(name: str, split: str = "") -> Placement:
    """The target's devices.

    Opens the named devices, and lists the machine's devices only for `auto`. Raises `StartError` for impossible devices
    and shares.
    """
    names, shares = devices.parse_target(name, split)
    if names == (AUTO,):
        present = look()
        return open_seen(devices.choose_target(name, split, present), present, shares, devices.TARGET_OPTION)
    opened = tuple(open_device(one, devices.TARGET_OPTION) for one in names)
    if any(devices.among(device, opened[:index]) for index, device in enumerate(opened)):
        raise StartError(devices.TARGET_OPTION, name, "names a card twice")
    return Placement(opened, shares)


def open_seen(
    chosen: Sequence[Device],
    present: Sequence[Device],
    shares: Sequence[float] = (),
    option: str = devices.DRAFT_OPTION,
) -> Placement:
    """Open devices that were `chosen` among the `present` ones. Raises `StartError` for one that has gone."""
    opened = tuple(open_device(devices.name_of(device, present), option) for device in chosen)
    for before, now in zip(chosen, opened, strict=True):
        if before.id != now.id:
            raise StartError(option, now.label, f"was the card {before.id} a moment ago and is {now.id} now; try again")
    return Placement(opened, tuple(shares))
