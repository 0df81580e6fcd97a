"""What one caller may send in a minute, on a fake and on a real server."""

from typing import Any, cast

from services.gateway.storage.allowance import Allowance
from shared.wire import keys
from shared.wire.broker import Broker


async def spent(allowance: Allowance, *sizes: int, caller: str = "a") -> list[bool]:
    """Which of the requests were let in, one after the other."""
    return [await allowance.spend(caller, size) == 0 for size in sizes]


async def later(broker: Broker, seconds: float, caller: str = "a") -> None:
    """As if so much time had passed."""
    redis = cast(Any, broker.redis)
    at = float(await redis.hget(keys.allowance(caller), "at"))
    await redis.hset(keys.allowance(caller), "at", at - seconds)


async def test_a_minute_s_requests_pass_at_once_and_the_next_is_told_when_to_come(broker: Broker) -> None:
    allowance = Allowance(broker.redis, requests=6)
    assert await spent(allowance, *[10] * 7) == [True] * 6 + [False]
    wait_s = await allowance.spend("a", 10)
    assert 0 < wait_s <= 10
    await later(broker, wait_s)
    assert await spent(allowance, 10, 10) == [True, False]
    assert await spent(allowance, 10, caller="b") == [True], "each caller has its own"


async def test_bytes_are_counted_too_and_a_refused_request_takes_nothing(broker: Broker) -> None:
    allowance = Allowance(broker.redis, size=100)
    assert await spent(allowance, 60, 60, 60, 40) == [True, False, False, True]
    assert 20 < await allowance.spend("a", 60) <= 36
    await later(broker, 3600)
    assert await spent(allowance, 100, 1) == [True, False], "no more than a minute's worth is saved up"


async def test_a_request_larger_than_a_minute_s_worth_needs_all_of_it(broker: Broker) -> None:
    allowance = Allowance(broker.redis, size=100)
    assert await spent(allowance, 1000, 1) == [True, False]


async def test_callers_without_keys_and_limits_of_zero_are_let_in(broker: Broker) -> None:
    assert await spent(Allowance(broker.redis, requests=1, size=1), *[9] * 3, caller="") == [True] * 3
    assert await spent(Allowance(broker.redis), *[9] * 3) == [True] * 3


async def test_what_is_kept_of_a_caller_is_gone_after_a_minute(broker: Broker) -> None:
    await Allowance(broker.redis, requests=5, size=5).spend("a", 1)
    assert 0 < await cast(Any, broker.redis).pttl(keys.allowance("a")) <= 60_000
