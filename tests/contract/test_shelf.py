"""What callers store is bounded and shared fairly, and the count stays right whatever is repeated, deleted or lost."""

from typing import Any, cast

import pytest

from services.gateway.storage.kept_turns import KeptTurn, TurnStore
from services.gateway.storage.shelf import Shelf
from shared.wire import keys
from shared.wire.broker import Broker


def shelf(broker: Broker, max_bytes: int = 1000, least: int = 1, ttl_ms: int = 60_000) -> Shelf:
    return Shelf(broker.redis, "turns", max_bytes, least, ttl_ms)


async def held(broker: Broker) -> dict[str, int]:
    redis = cast(Any, broker.redis)
    found = await redis.zrange(keys.shelf_held("turns"), 0, -1, withscores=True)
    return {name.decode(): int(size) for name, size in found}


async def there(broker: Broker, *names: str) -> list[str]:
    return [name for name in names if await broker.redis.get(name) is not None]


async def test_a_value_that_is_repeated_or_replaced_counts_once(broker: Broker) -> None:
    one = shelf(broker)
    for size in (100, 100, 50):
        assert await one.put("a", "x", b"x" * size)
    assert await held(broker) == {"a": 50, "*": 50}
    assert await one.forget("a", "x")
    assert not await one.forget("a", "x")
    assert await held(broker) == {}
    assert await cast(Any, broker.redis).keys("*") == []


async def test_the_caller_with_the_most_loses_its_oldest(broker: Broker) -> None:
    one = shelf(broker)
    for number in range(5):
        await one.put("a", f"a{number}", b"x" * 150)
    await one.put("b", "b0", b"x" * 200)
    assert await there(broker, "a0", "a1", "b0") == ["a0", "a1", "b0"]
    await one.put("b", "b1", b"x" * 200)
    assert await there(broker, "a0", "a1", "a2", "b0", "b1") == ["a1", "a2", "b0", "b1"]
    assert await held(broker) == {"a": 600, "b": 400, "*": 1000}


async def test_a_value_above_what_its_caller_may_have_is_not_stored(broker: Broker) -> None:
    one = shelf(broker)
    for caller in "abcd":
        assert await one.put(caller, caller, b"x" * 200)
    assert not await one.put("e", "e", b"x" * 300)
    assert await there(broker, *"abcde") == list("abcd")
    assert await one.put("e", "e", b"x" * 200)


async def test_what_has_expired_counts_no_longer(broker: Broker) -> None:
    one = shelf(broker)
    await one.put("a", "a0", b"x" * 600)
    redis = cast(Any, broker.redis)
    [item] = await redis.zrange(keys.shelf("turns"), 0, -1)
    await redis.zadd(keys.shelf("turns"), {item: 1})
    await one.put("b", "b0", b"x" * 900)
    assert await held(broker) == {"b": 900, "*": 900}


@pytest.mark.parametrize("lost", [keys.shelf("turns"), keys.shelf_of("turns", "a"), keys.shelf_held("turns")])
async def test_a_broker_that_forgets_any_of_its_lists_takes_more_values(broker: Broker, lost: str) -> None:
    one = shelf(broker)
    for caller in "ab":
        await one.put(caller, f"{caller}0", b"x" * 400)
    await broker.redis.delete(lost)
    for number in range(1, 20):
        for caller in "ab":
            assert await one.put(caller, f"{caller}{number}", b"x" * 400)
            assert (await held(broker))["*"] <= 1000


async def test_kept_turns_are_shared_too(broker: Broker) -> None:
    store = TurnStore(broker.redis, max_bytes=10 << 10)
    turn = KeptTurn(tokens=(1, 2), text="", calls=())
    await store.of("small").keep("call-1", turn)
    for number in range(30):
        await store.of("flooder").keep(f"flood-{number}", turn)
    assert await store.find(["call-1"]) == {"call-1": turn}
    found = await store.find([f"flood-{number}" for number in range(30)])
    assert sorted(found) == sorted(f"flood-{number}" for number in range(21, 30))
