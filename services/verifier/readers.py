"""Ends the requests of dead gateways, so that other requests get their places.

A gateway is dead once its card was not renewed for `SILENT_S`, over three heartbeats. Time in which Redis or this
process was away does not count, so an outage never costs a living gateway its requests. Each verifier watches all
requests of its model, waiting and running, its own and other verifiers'.
"""

import math
from collections.abc import Callable

import structlog

from shared.fleet.liveness import AWAY_S, SILENT_S, Liveness, watch
from shared.fleet.registry import Registry
from shared.wire.jobs import JobStore

logger = structlog.get_logger()


class Readers:
    """Watches the gateways that read this model's requests."""

    def __init__(
        self, store: JobStore, registry: Registry, freed: Callable[[int], object] = lambda requests: None
    ) -> None:
        """`freed` is called with the number of requests that were ended."""
        self._freed = freed
        self._store = store
        self._registry = registry
        self._liveness = Liveness(SILENT_S, AWAY_S)
        self._readers: dict[str, str] = {}  # live request to its gateway

    async def run(self) -> None:
        await watch("readers", self._liveness, self.check)

    async def check(self, now: float) -> None:
        """Look once, at `now` seconds of a steady clock. Raises redis-py's errors."""
        await self._look_up(await self._store.live())
        readers = sorted({reader for reader in self._readers.values() if reader})
        ages = await self._registry.ages_ms(readers) if readers else {}
        dead = self._liveness.dead(now, {name: ages.get(name, math.inf) / 1000 for name in readers})
        unread = [request_id for request_id, reader in self._readers.items() if reader in dead]
        for request_id in unread:
            await self._store.abandon(request_id)
        if unread:
            self._freed(len(unread))
            logger.warning("requests_abandoned", gateways=sorted(dead), requests=len(unread))

    async def _look_up(self, live: list[str]) -> None:
        known = {request_id: self._readers[request_id] for request_id in live if request_id in self._readers}
        new = [request_id for request_id in live if request_id not in known]
        found = await self._store.readers(new) if new else []
        self._readers = known | dict(zip(new, found, strict=True))
