"""What the gateway tells of Redis: nothing that it does not know, and no failure of a scrape."""

from typing import Any, cast

import prometheus_client as prometheus
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError

from services.gateway.monitoring.queue_metrics import QueueMetrics
from shared.wire.broker import Broker
from tests.service.scripted import card


class Redis:
    """Answers the script with a queue of three, and `info` unless told to fail."""

    def __init__(self, *, script: Exception | None = None, info: Exception | None = None) -> None:
        self._script = script
        self._info = info

    async def ping(self) -> bool:
        return True

    async def evalsha(self, *_: Any) -> list[int]:
        if self._script:
            raise self._script
        return [3, 2500]

    async def info(self, section: str) -> dict[str, int]:
        if self._info:
            raise self._info
        return {"used_memory": 80, "maxmemory": 100}


async def shown(queue_metrics: QueueMetrics, redis: Redis) -> dict[str, float]:
    await queue_metrics.look(Broker(cast(Any, redis), cast(Any, None)), [card()])
    registry = prometheus.CollectorRegistry()
    registry.register(queue_metrics)
    return {
        sample.name.removeprefix("draftmesh_"): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


async def test_the_queue_and_the_memory_are_shown() -> None:
    assert await shown(QueueMetrics(), Redis()) == {
        "redis_up": 1,
        "num_requests_waiting": 3,
        "oldest_waiting_seconds": 2.5,
        "redis_memory_bytes": 80,
        "redis_max_memory_bytes": 100,
    }


async def test_a_user_that_may_not_ask_for_the_memory_still_sees_the_queue() -> None:
    found = await shown(QueueMetrics(), Redis(info=NoPermissionError("no permission")))
    assert found == {"redis_up": 1, "num_requests_waiting": 3, "oldest_waiting_seconds": 2.5}


@pytest.mark.parametrize("error", [RedisConnectionError("gone"), TimeoutError(), OSError()])
async def test_old_numbers_are_not_shown_as_new_ones(error: Exception) -> None:
    queue_metrics = QueueMetrics()
    await shown(queue_metrics, Redis())
    assert await shown(queue_metrics, Redis(script=error)) == {"redis_up": 0}
    assert (await shown(queue_metrics, Redis()))["num_requests_waiting"] == 3


async def test_a_model_whose_verifiers_left_keeps_its_queue() -> None:
    queue_metrics = QueueMetrics()
    await shown(queue_metrics, Redis())
    await queue_metrics.look(Broker(cast(Any, Redis()), cast(Any, None)), [])
    [waiting] = [metric for metric in queue_metrics.collect() if metric.name == "draftmesh_num_requests_waiting"]
    assert [(sample.labels, sample.value) for sample in waiting.samples] == [({"model": "smol"}, 3)]
