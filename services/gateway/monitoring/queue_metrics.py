"""Waiting requests and the memory of Redis, as of the last look: figures for scaling and for alerts."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from shared.wire.broker import DISCONNECTED, Broker
from shared.wire.jobs import JobStore, Queue
from shared.wire.messages import Card, VerifierCard

_LOOK_S: Final = 1.0  # part of the few seconds that a scrape may take


class QueueMetrics(Collector):
    """Gauges of what all gateways share, so each gateway shows the same values."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}
        self._memory: tuple[int, int] | None = None
        self._up = False

    async def look(self, broker: Broker, cards: Iterable[Card]) -> None:
        """Ask Redis now, about every model that was ever served. Without an answer only `redis_up` is exported."""
        models = {card.model for card in cards if isinstance(card, VerifierCard)} | self._queues.keys()
        up, queues, found = False, dict.fromkeys(models, Queue(0, 0)), None
        with suppress(RedisError, *DISCONNECTED):
            async with asyncio.timeout(_LOOK_S):
                await broker.redis.ping()
                queues = {model: await JobStore(broker.redis, broker.blocking, model).queue() for model in models}
                up = True
                memory = await broker.redis.info("memory")
                found = int(memory["used_memory"]), int(memory["maxmemory"])
        # In one step, so that no scrape sees half an update.
        self._up, self._queues, self._memory = up, queues, found

    @property
    def waiting(self) -> dict[str, int]:
        """By model, the requests that no verifier has taken yet; empty while Redis does not answer."""
        return {model: queue.waiting for model, queue in sorted(self._queues.items())} if self._up else {}

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("draftmesh_redis_up", "Whether Redis answers this gateway: 1 or 0.")
        up.add_metric([], self._up)
        yield up
        waiting = GaugeMetricFamily(
            "draftmesh_num_requests_waiting", "Requests that no verifier has taken yet.", labels=["model"]
        )
        oldest = GaugeMetricFamily(
            "draftmesh_oldest_waiting_seconds", "How long the oldest of them has waited.", labels=["model"]
        )
        for model, queue in sorted(self._queues.items()):
            if self._up:
                waiting.add_metric([model], queue.waiting)
                oldest.add_metric([model], queue.oldest_ms / 1000)
        yield from (waiting, oldest)
        used = GaugeMetricFamily("draftmesh_redis_memory_bytes", "Memory that Redis uses.")
        limit = GaugeMetricFamily("draftmesh_redis_max_memory_bytes", "Memory that Redis may use; 0: no limit.")
        if self._memory is not None:
            used.add_metric([], self._memory[0])
            limit.add_metric([], self._memory[1])
        yield from (used, limit)
