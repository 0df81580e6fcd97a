"""The store of responses is bounded, whatever clients leave in it."""

import random
from typing import Any, cast

import pytest

from services.gateway.storage.response_store import TTL_MS, ResponseStore, StoredResponse
from shared.wire import keys
from shared.wire.broker import Broker


def stored(number: int, size: int = 10) -> StoredResponse:
    """One that does not get smaller than `size` bytes."""
    noise = random.Random(number).randbytes(size).hex()
    return StoredResponse(response={"id": f"resp_{number:x}", "output": []}, items=[{"content": noise}])


async def kept(store: ResponseStore, count: int) -> list[int]:
    return [number for number in range(count) if await store.find(f"resp_{number:x}") is not None]


async def test_what_was_kept_is_found_again(broker: Broker) -> None:
    store = ResponseStore(broker.redis, "caller")
    assert await store.keep(stored(7))
    assert await store.find("resp_7") == stored(7)
    assert await ResponseStore(broker.redis, "caller").find("resp_7") == stored(7)
    assert await store.of("another").find("resp_7") is None


async def test_the_oldest_go_first_when_there_are_too_many(broker: Broker) -> None:
    store = ResponseStore(broker.redis, max_count=4)
    for number in range(6):
        await store.of(str(number)).keep(stored(number))
    assert [await kept(store.of(str(number)), 6) for number in range(6)] == [[], [], [2], [3], [4], [5]]


async def test_the_oldest_go_first_when_they_are_too_big(broker: Broker) -> None:
    store = ResponseStore(broker.redis, max_bytes=5000)
    for number in range(6):
        await store.keep(stored(number, 1500))
    left = await kept(store, 6)
    assert left == list(range(left[0], 6))
    redis = cast(Any, broker.redis)
    held = sum([await redis.strlen(keys.response("", f"resp_{number:x}")) for number in left])
    assert 2500 < held < 5000 + 2500
    assert not await store.keep(stored(9, 6000))
    assert await kept(store, 6) == left


async def test_every_key_expires(broker: Broker) -> None:
    store = ResponseStore(broker.redis)
    await store.keep(stored(1))
    redis = cast(Any, broker.redis)
    names = await redis.keys("*")
    assert len(names) == 4
    for name in names:
        assert 0 < await redis.pttl(name) <= TTL_MS


async def test_what_was_forgotten_is_gone_and_leaves_room(broker: Broker) -> None:
    store = ResponseStore(broker.redis, max_count=2)
    await store.keep(stored(1))
    assert await store.forget("resp_1")
    assert not await store.forget("resp_1")
    for number in (2, 3):
        await store.keep(stored(number))
    assert await kept(store, 4) == [2, 3]


async def test_ids_of_no_response_ask_redis_nothing(broker: Broker) -> None:
    store = ResponseStore(broker.redis)
    for odd in ("", "resp_", "resp_G", "resp_1\n", "*", "x" * 100_000):
        assert await store.find(odd) is None
        assert not await store.forget(odd)


@pytest.mark.parametrize("bounds", [{"max_count": 12}, {"max_bytes": 40_000}])
async def test_however_many_flood_none_is_pushed_below_an_equal_share(broker: Broker, bounds: Any) -> None:
    store = ResponseStore(broker.redis, **bounds)
    for number in (98, 99):
        assert await store.of("small").keep(stored(number, 1500))
    for number in range(20):
        for flooder in "abcd":
            assert await store.of(flooder).keep(stored(number, 1500))
    assert await kept(store.of("small"), 100) == [98, 99]
    for flooder in "abcd":  # they share the rest, and each keeps its newest
        own = await kept(store.of(flooder), 20)
        assert own == list(range(own[0], 20))
        assert 2 <= len(own) <= 5


async def test_one_alone_may_use_all_of_it(broker: Broker) -> None:
    store = ResponseStore(broker.redis, max_count=12)
    for number in range(20):
        assert await store.of("a").keep(stored(number))
    assert await kept(store.of("a"), 20) == list(range(8, 20))
