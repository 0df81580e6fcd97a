"""Chooses the device of a draft model: the named one, or one that slows no target on this machine."""

import asyncio

from shared.fleet.arriving import Arriving
from shared.machine import devices
from shared.model.llama.backend_device import open_device
from shared.model.llama.placement import Placement, look, open_seen


def named(name: str) -> Placement | None:
    """Opens the device of this name; None for `auto`, which depends on other processes. Raises `StartError`."""
    if name.strip().lower() == devices.AUTO:
        return None
    return Placement((open_device(name, devices.DRAFT_OPTION),))


async def place_drafter(
    place: Placement | None, arriving: Arriving, gpu_layers: str, stop: asyncio.Event
) -> Placement | None:
    """Announce the draft model's place. With `place` None choose the best GPU that no target uses, or else the CPU.

    Waits for a verifier if the choice depends on its device. Returns None if `stop` was set meanwhile.
    """
    if place is None:
        present = await asyncio.to_thread(look)
        if devices.by_preference(present) and not await arriving.a_verifier(stop):
            return None
        chosen = devices.choose_draft(devices.AUTO, present, await arriving.targets())
        place = open_seen([chosen], present)
    on_cpu = place.on_cpu(gpu_layers)
    await arriving.place([device.plain() for device in place.gpus], on_cpu)
    if on_cpu and arriving.divides and not await arriving.a_verifier(stop):
        return None
    return place
