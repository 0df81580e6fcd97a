"""Ends the records of gateways that died, so that their readers do not wait for ever.

Verifiers free the requests of such gateways. Every gateway checks the records of all gateways, and of its own those
that no task writes any more.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog
from redis.exceptions import ResponseError

from services.gateway.dialects.responses.answer import failure, numbered, unframed
from services.gateway.http.background_work import Background
from services.gateway.storage.records import RecordStore
from shared.fleet.liveness import AWAY_S, SILENT_S, Liveness, watch
from shared.fleet.registry import Registry
from shared.wire.connection import RefusedError

logger = structlog.get_logger()

_MESSAGE: Final = "The gateway that generated this response has stopped."


class Recorders:
    """Watches the gateways that write records."""

    def __init__(self, records: RecordStore, registry: Registry, background: Background) -> None:
        self._records = records
        self._registry = registry
        self._background = background
        self._liveness = Liveness(SILENT_S, AWAY_S)
        self._orphans: set[str] = set()  # this gateway's own, at the last look

    async def run(self) -> None:
        """Watch for ever."""
        await watch("recorders", self._liveness, self.check)

    async def check(self, now: float) -> None:
        """Look once, at `now` seconds of a steady clock. Raises redis-py's errors."""
        growing = await self._records.growing()
        own = self._background.instance
        others = sorted({gateway for gateway in growing.values() if gateway != own})
        ages = await self._registry.ages_ms(others) if others else {}
        dead = self._liveness.dead(now, {name: ages.get(name, math.inf) / 1000 for name in others})
        orphans = {key for key, gateway in growing.items() if gateway == own and not self._background.writes(key)}
        # A record that has just ended may look abandoned, but only once.
        lost = [key for key, gateway in growing.items() if gateway in dead or key in orphans & self._orphans]
        self._orphans = orphans
        for key in lost:
            logger.warning("record_abandoned", gateway=growing[key])
            await self._end(key)

    async def _end(self, key: str) -> None:
        """Write the last event. If later events came meanwhile, the next look finds the record again."""
        try:
            entries = await self._records.read(key)
            if not entries:
                await self._records.finish(key, 1, b"")  # the record does not exist, and this notes it
                return
            number = entries[-1].number + 1
            await self._records.finish(key, number, _farewell([unframed(entry.frame) for entry in entries], number))
        except (ResponseError, msgspec.MsgspecError, KeyError) as error:
            if isinstance(error, RefusedError):
                raise
            logger.warning("record_damaged")
            await self._records.drop(key)


def _farewell(events: Sequence[Mapping[str, Any]], number: int) -> bytes:
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    response = failure(events[0]["response"], _MESSAGE, items)
    return numbered({"type": "response.failed", "response": response}, number, resumable=True)
