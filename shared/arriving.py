"""A verifier or drafter before it serves: it tells the others where it will compute, and asks what they do.

Nothing depends on it. A process whose Redis is away decides as if it were alone.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Literal, Protocol, Self

import structlog
from msgspec.structs import replace

from shared import lifecycle, machine, neighbours
from shared.broker import DISCONNECTED
from shared.devices import Device
from shared.messages import Announced, Arrival, GatewayCard, Site
from shared.registry import Registry

logger = structlog.get_logger()

_LOOK_S: Final = 0.5  # between two looks for a verifier


class Threads(Protocol):
    """Says how many threads a model takes, once it is known whether the CPU computes any of it, and where that is."""

    def __call__(self, on_cpu: bool) -> Site: ...


def alone(threads: int) -> Threads:
    """For a process that knows of no others: the threads that were asked for (0: all cores)."""

    def take(on_cpu: bool) -> Site:
        return Site(threads=threads or (machine.available_cores() if on_cpu else 1))

    return take


class Arriving:
    """Keeps an `Arrival` alive in the registry while its block runs. What is published after it replaces it."""

    def __init__(
        self, registry: Registry, instance: str, role: Literal["verifier", "drafter"], threads: int = 0
    ) -> None:
        """`threads` is what was asked for; 0 asks for a fair share."""
        self._registry = registry
        self._asked = threads
        self._arrival = Arrival(
            id=instance,
            host=socket.gethostname(),
            pid=os.getpid(),
            role=role,
            site=Site(machine=machine.identity(), processes=machine.processes(), quota=machine.quota().group),
            created=int(time.time()),
        )

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._beats = asyncio.create_task(lifecycle.heartbeat(self._registry, lambda: self._arrival), name="arriving")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beats.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._beats
        if error is not None:
            with contextlib.suppress(*DISCONNECTED):
                await self._registry.leave(self._arrival.id)

    @property
    def divides(self) -> bool:
        """Whether this process shares the cores with others: no number of threads was asked for."""
        return not self._asked

    async def place(self, gpus: Sequence[Device], on_cpu: bool) -> None:
        """Tell where the model will lie: on these GPUs, and whether the CPU computes any of it."""
        await self._tell(replace(self._arrival.site, devices=tuple(gpus), cores=_mask() if on_cpu else ""))

    async def targets(self) -> list[Device]:
        """The GPUs of this machine that targets lie on."""
        return neighbours.targets(self._arrival, await self._others())

    async def a_verifier(self, stop: asyncio.Event) -> bool:
        """Wait until any verifier, on any machine, serves or is about to; False if `stop` was set first.

        What a drafter had better leave alone is known only then, and before that it has nobody to draft for.
        """
        told = False
        while not any(map(neighbours.is_verifier, await self._others())):
            if not told:
                logger.info("verifier_awaited", reason="its device and threads decide ours, and nobody needs us before")
            told = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await stop.wait()
            if stop.is_set():
                return False
        return True

    def threads(self, on_cpu: bool) -> Site:
        """Choose and tell; for the thread that loads the model, as late as it can."""
        return asyncio.run_coroutine_threadsafe(self._choose(on_cpu), self._loop).result()

    async def _choose(self, on_cpu: bool) -> Site:
        site = replace(self._arrival.site, cores=_mask() if on_cpu else "")
        count = self._asked or 1
        if on_cpu and not self._asked:
            own = replace(self._arrival, site=site)
            count = neighbours.share(own, await self._others(), len(machine.cores()), machine.quota().cores)
        if on_cpu:
            logger.info("threads_chosen", threads=count, cores=machine.available_cores())
        await self._tell(replace(site, threads=count))
        return self._arrival.site

    async def _tell(self, site: Site) -> None:
        self._arrival = replace(self._arrival, site=site)
        with contextlib.suppress(*DISCONNECTED):
            await self._registry.beat(self._arrival)

    async def _others(self) -> Sequence[Announced]:
        """Those who live; the card of one that was killed lies there for a while, and may be our predecessor's."""
        try:
            cards = await self._registry.announced()
        except DISCONNECTED:
            return ()
        return [card for card in cards if not self._is_dead(card)]

    def _is_dead(self, card: Announced) -> bool:
        ours = self._arrival
        if isinstance(card, GatewayCard) or card.id == ours.id:
            return False
        near = (card.site.machine, card.site.processes) == (ours.site.machine, ours.site.processes)
        return near and (card.pid == ours.pid or not machine.runs(card.pid))


def _mask() -> str:
    """The cores that this process may run on, a bit each, in hexadecimal digits."""
    return f"{sum(1 << core for core in machine.cores()):x}"
