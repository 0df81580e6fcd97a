"""A verifier or drafter before it serves: it announces where it will compute, and reads where others do.

Correctness does not depend on it: a process without Redis decides as if it were alone.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Literal, Self

import structlog
from msgspec.structs import replace

from shared.fleet import neighbours
from shared.fleet.registry import HEARTBEAT_S, Registry
from shared.machine import resources
from shared.machine.devices import Device
from shared.machine.threads import for_drafters
from shared.wire.broker import DISCONNECTED, Reconnect
from shared.wire.messages import Announced, Arrival, Site

logger = structlog.get_logger()

_LOOK_S: Final = 0.25  # time between two reads of the others' cards
_LATE_MS: Final = int(2.5 * HEARTBEAT_S * 1000)  # longest time since the last heartbeat of a living process


# Chooses the number of a model's threads, once its device is known and whether the CPU computes any of it.
Threads = Callable[[bool], Site]


def alone(threads: int) -> Threads:
    """For a process that knows of no others: the requested threads (0: all cores)."""

    def choose(on_cpu: bool) -> Site:
        count = threads or (resources.available_cores() if on_cpu else 1)
        return Site(threads=count, most=count)

    return choose


class Arriving:
    """Keeps an `Arrival` in the registry from the choice of a place until the block ends.

    The card that the process then publishes replaces it.
    """

    def __init__(
        self,
        registry: Registry,
        instance: str,
        role: Literal["verifier", "drafter"],
        threads: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`threads` is the requested number; 0 means a fair share."""
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._beats: asyncio.Task[None] | None = None
        self._registry = registry
        self._asked = threads
        self._arrival = Arrival(
            id=instance,
            host=socket.gethostname(),
            pid=os.getpid(),
            role=role,
            site=Site(machine=resources.identity(), quota=resources.quota().group),
            created=int(time.time()),
        )

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._came = self._clock()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._beats is None:
            return
        self._beats.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._beats
        if error is not None:
            with contextlib.suppress(*DISCONNECTED):
                await self._registry.leave(self._arrival.id)

    @property
    def divides(self) -> bool:
        """Whether this process shares the cores with others, because no number of threads was requested."""
        return not self._asked

    async def place(self, gpus: Sequence[Device], on_cpu: bool) -> None:
        """Announce, once, where the model will be: on these GPUs, and whether the CPU computes any of it."""
        await self._tell(replace(self._arrival.site, devices=tuple(gpus), cores=_mask() if on_cpu else ""))
        self._beats = asyncio.create_task(self._stay(), name="arriving")

    async def targets(self) -> list[Device]:
        """The GPUs of this machine that targets use."""
        return neighbours.targets(self._arrival, await self._others())

    async def a_verifier(self, stop: asyncio.Event) -> bool:
        """Wait until a verifier on any machine serves or is about to; False if `stop` was set first.

        Only then does a drafter know which devices to avoid, and before that there is no verifier to draft for.
        """
        told = False
        while not any(map(neighbours.is_verifier, await self._others())):
            if not told:
                logger.info(
                    "waiting_for_verifier", reason="a drafter chooses its device and threads after the verifier"
                )
            told = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await stop.wait()
            if stop.is_set():
                return False
        return True

    def threads(self, on_cpu: bool) -> Site:
        """Choose and announce; the thread that loads the model calls this as late as it can."""
        return asyncio.run_coroutine_threadsafe(self._choose(on_cpu), self._loop).result()

    async def _choose(self, on_cpu: bool) -> Site:
        site = replace(self._arrival.site, cores=_mask() if on_cpu else "")
        count = most = self._asked or 1
        if on_cpu and not self._asked:
            own = replace(self._arrival, site=site)
            limits = len(resources.cores()), resources.quota().cores
            living = await self._living()
            count, most = neighbours.share(own, living, *limits), neighbours.most(own, living, *limits)
            if neighbours.is_verifier(own):  # a drafter may join later
                count = max(1, min(count, most - for_drafters(most, 1, 1)))
        if on_cpu:
            logger.info("threads_chosen", threads=most, beside=count, cores=resources.available_cores())
        await self._tell(replace(site, threads=count, most=most))
        return self._arrival.site

    async def _tell(self, site: Site) -> None:
        self._arrival = replace(self._arrival, site=site)
        with contextlib.suppress(*DISCONNECTED):
            await self._beat()

    async def _beat(self) -> None:
        async with self._one_at_a_time:  # otherwise an older card might arrive last
            await self._registry.beat(self._arrival)

    async def _stay(self) -> None:
        reconnect = Reconnect("arriving")
        while True:
            await reconnect.insist(self._beat)
            await asyncio.sleep(HEARTBEAT_S)

    async def _others(self) -> Sequence[Announced]:
        try:
            return await self._registry.announced()
        except DISCONNECTED:
            return ()

    async def _living(self) -> Sequence[Announced]:
        """The others without dead processes, whose cards remain for a while.

        A process lives if it has renewed its card since this one arrived, and is dead if it is late for that. This
        takes at most one heartbeat, which usually has passed while the model was loading.
        """
        while True:
            cards = await self._others()
            ids = [card.id for card in neighbours.beside(self._arrival, cards)]
            try:
                ages = await self._registry.ages_ms(ids)
            except DISCONNECTED:
                return ()
            here_ms = (self._clock() - self._came) * 1000
            if not any(here_ms <= age < _LATE_MS for age in ages.values()):
                return [card for card in cards if ages.get(card.id, _LATE_MS) < _LATE_MS]
            await asyncio.sleep(_LOOK_S)


def _mask() -> str:
    """The cores that this process may run on, a bit each, in hexadecimal digits."""
    return f"{sum(1 << core for core in resources.cores()):x}"
