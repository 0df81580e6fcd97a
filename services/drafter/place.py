"""Where a draft model lies: as it was told, or where no target of this machine is slowed, wherever that was started."""

import asyncio

from shared.fleet.arriving import Arriving
from shared.machine import devices
from shared.model.llama.backend_device import open_device
from shared.model.llama.placement import Placement, look, open_seen


def named(name: str) -> Placement | None:
    """The device of this name, open; None for `auto`, which others have a say in. Raises `StartError`."""
    if name.strip().lower() == devices.AUTO:
        return None
    return Placement((open_device(name, devices.DRAFT_OPTION),))


async def place_drafter(
    place: Placement | None, arriving: Arriving, gpu_layers: str, stop: asyncio.Event
) -> Placement | None:
    """The draft model's place, told to the others; without one, the best that no target's card is needed for.

    A choice that depends on the target waits until there is one; None if `stop` was set meanwhile.
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
