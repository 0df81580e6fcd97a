"""A held-up event loop is told as long as a probe may be looking, and forgotten after."""

import asyncio
import math
import time

import pytest

from services.gateway.monitoring.loop_health import BEAT_S, LoopHealth


async def test_a_loop_that_is_held_up_is_seen() -> None:
    loop_health = LoopHealth()
    task = asyncio.create_task(loop_health.run())
    await asyncio.sleep(0)
    assert loop_health.lag < BEAT_S
    time.sleep(BEAT_S + 0.2)  # noqa: ASYNC251 - which is what must not happen
    assert loop_health.lag >= 0.2 * 0.9
    task.cancel()


def test_the_worst_of_the_last_seconds_counts() -> None:
    loop_health = LoopHealth()
    for due, late in ((1.0, 0.0), (2.0, 6.0), (9.0, 0.1)):
        loop_health._due = due
        loop_health.beat(due + late)
    loop_health._due = 10.0
    assert loop_health.lag_s(9.5) == pytest.approx(6.0)
    assert loop_health.lag_s(17.9) == pytest.approx(7.9)  # the sleep under way is the worst by now
    loop_health._due = 30.0
    assert loop_health.lag_s(29.0) == 0.0


async def test_a_heartbeat_ages() -> None:
    loop_health = LoopHealth()
    assert loop_health.heartbeat_age() == math.inf
    loop_health.heard()
    assert 0 <= loop_health.heartbeat_age() < 5
