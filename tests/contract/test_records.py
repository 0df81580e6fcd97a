"""Records of responses: each event once and in order, one end, bounded in bytes and time, and none left to wait for."""

from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.dialects.responses.answer import numbered, unframed
from services.gateway.dialects.responses.recorders import Recorders
from services.gateway.http.background_work import Background
from services.gateway.storage.records import ENDED_TTL_MS, AppendOutcome, Origin, RecordStore
from shared.fleet.registry import Registry
from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.messages import GatewayCard
from tests.examples import few

ORIGIN = Origin("gateway-1", "toy", "req-1")
ID = "resp_1"


def frame(number: int, kind: str = "output_text.delta", **more: Any) -> bytes:
    return numbered({"type": f"response.{kind}", **more}, number, resumable=True)


FIRST = frame(0, "created", response={"id": ID, "status": "queued", "error": None, "output": []})


async def begun(store: RecordStore, response_id: str = ID, origin: Origin = ORIGIN) -> str:
    assert await store.begin(response_id, origin, [FIRST, frame(1)], 1000) is AppendOutcome.OK
    return store.key(response_id)


async def numbers(store: RecordStore, key: str, after: int = -1) -> list[int]:
    return [entry.number for entry in await store.read(key, after)]


async def test_events_are_read_from_any_place(broker: Broker) -> None:
    store = RecordStore(broker.redis, "caller")
    key = await begun(store)
    assert await store.append(ID, 2, [frame(2), frame(3)]) is AppendOutcome.OK
    for after in range(-1, 5):
        assert await numbers(store, key, after) == list(range(after + 1, 4))
    assert [entry.number for entry in await store.read(key, 0, 2)] == [1, 2]
    record = await store.find(ID)
    assert record is not None
    assert (record.origin, record.first.frame, record.newest.number) == (ORIGIN, FIRST, 3)
    assert await store.of("another").find(ID) is None


async def test_what_is_repeated_is_there_once(broker: Broker) -> None:
    """After a lost reply the writer cannot know that it was heard."""
    store = RecordStore(broker.redis)
    await begun(store)
    key = await begun(store)
    for _ in range(2):
        assert await store.append(ID, 2, [frame(2), frame(3)]) is AppendOutcome.OK
    assert await numbers(store, key) == [0, 1, 2, 3]
    for _ in range(2):
        assert await store.finish(key, 4, frame(4, "completed")) is AppendOutcome.OK
    assert await numbers(store, key) == [0, 1, 2, 3, 4]


async def test_a_record_has_one_end(broker: Broker) -> None:
    store = RecordStore(broker.redis)
    key = await begun(store)
    assert list(await store.growing()) == [key]
    assert await store.finish(key, 1, frame(1, "failed")) is AppendOutcome.BEHIND
    assert await store.finish(key, 2, frame(2, "failed")) is AppendOutcome.OK
    assert await store.finish(key, 2, frame(2, "completed")) is AppendOutcome.ENDED
    assert await store.append(ID, 2, [frame(2)]) is AppendOutcome.ENDED
    assert await store.append(ID, 3, [frame(3)]) is AppendOutcome.ENDED
    [*_, last] = await store.read(key)
    assert (last.number, last.last, unframed(last.frame)["type"]) == (2, True, "response.failed")
    assert await store.growing() == {}


async def test_what_redis_lost_is_noticed(broker: Broker) -> None:
    store = RecordStore(broker.redis)
    key = await begun(store)
    assert await store.append(ID, 5, [frame(5)]) is AppendOutcome.GAP
    assert await store.finish(key, 6, frame(6, "failed")) is AppendOutcome.OK
    assert await numbers(store, key) == [0, 1, 6]
    key = await begun(store, "resp_2")
    assert await store.forget("resp_2")
    assert not await store.forget("resp_2")
    assert await store.append("resp_2", 2, [frame(2)]) is AppendOutcome.GONE
    assert await store.finish(key, 2, frame(2, "completed")) is AppendOutcome.GONE
    assert await store.find("resp_2") is None


async def size(broker: Broker) -> int:
    """Bytes of all records, as they are counted; the sum of what is there."""
    redis = cast(Any, broker.redis)
    counted = {name.decode(): int(value) for name, value in (await redis.hgetall(keys.record_sizes())).items()}
    total = counted.pop("total", 0)
    store = RecordStore(broker.redis)
    callers = {name: counted.pop(name) for name in list(counted) if name.endswith(":")}
    for caller, count in callers.items():
        assert count == sum(counted[key] for key in counted if key.startswith(caller))
    assert sum(callers.values()) == total
    for key, count in counted.items():
        assert count == sum(len(entry.frame) for entry in await store.read(key))
    assert total == sum(counted.values())
    return total


async def test_a_record_is_bounded(broker: Broker) -> None:
    store = RecordStore(broker.redis, max_entry_bytes=1000)
    key = await begun(store)
    number = 2
    while (written := await store.append(ID, number, [frame(number)])) is AppendOutcome.OK:
        number += 1
    assert written is AppendOutcome.FULL
    assert 1000 < await size(broker) < 1000 + 2 * len(frame(number))
    assert await numbers(store, key) == list(range(number + 1))  # with the one that was too much
    assert await store.finish(key, number + 1, frame(number + 1, "failed")) is AppendOutcome.OK
    assert await store.begin("resp_2", ORIGIN, [b"x" * 1001], 1000) is AppendOutcome.FULL
    assert await store.find("resp_2") is None


async def test_the_first_to_expire_make_room_and_what_grows_is_left_alone(broker: Broker) -> None:
    store = RecordStore(broker.redis, max_bytes=2000)
    growing = await begun(store, "resp_a")
    for name in ("resp_b", "resp_c"):
        key = await begun(store, name)
        assert await store.append(name, 2, [b"x" * 400]) is AppendOutcome.OK
        assert await store.finish(key, 3, frame(3, "completed")) is AppendOutcome.OK
    assert await store.append("resp_a", 2, [b"y" * 500]) is AppendOutcome.OK
    assert [await store.find(name) is not None for name in ("resp_a", "resp_b", "resp_c")] == [True, False, True]
    assert await size(broker) <= 2000
    assert await store.append("resp_a", 3, [b"y" * 2000]) is AppendOutcome.FULL
    assert await numbers(store, growing) == [0, 1, 2, 3]
    assert await store.begin("resp_d", ORIGIN, [FIRST], 1000) is AppendOutcome.FULL
    await size(broker)


async def test_a_caller_has_a_share_and_makes_room_from_its_own(broker: Broker) -> None:
    store = RecordStore(broker.redis, max_bytes=8000)
    other = await begun(store.of("b"), "resp_b")
    await store.of("b").finish(other, 2, frame(2, "completed"))
    for name in ("resp_1", "resp_2", "resp_3"):
        key = await begun(store.of("a"), name)
        assert await store.of("a").append(name, 2, [b"x" * 900]) is AppendOutcome.OK
        await store.of("a").finish(key, 3, frame(3, "completed"))
    found = [await store.of("a").find(name) is not None for name in ("resp_1", "resp_2", "resp_3")]
    assert found == [False, False, True]
    assert await store.of("b").find("resp_b") is not None
    await begun(store.of("a"), "resp_4")
    assert await store.of("a").append("resp_4", 2, [b"x" * 1900]) is AppendOutcome.FULL, "what grows is left alone"
    assert await store.of("b").begin("resp_5", ORIGIN, [FIRST], 1000) is AppendOutcome.OK
    await size(broker)


async def test_everything_expires(broker: Broker) -> None:
    store, redis = RecordStore(broker.redis), cast(Any, broker.redis)
    key = await begun(store)
    assert ENDED_TTL_MS < await redis.pttl(key) <= ENDED_TTL_MS + 61_000
    await begun(store, "resp_2")
    await store.finish(key, 2, frame(2, "completed"))
    for name in await redis.keys("*"):
        assert 0 < await redis.pttl(name) <= ENDED_TTL_MS + 61_000
    assert await redis.pttl(key) <= ENDED_TTL_MS
    await redis.delete(key)  # as if it had
    await redis.zadd(keys.records(), {key: 1})
    await store.append("resp_2", 2, [frame(2)])
    assert not await redis.hexists(keys.record_sizes(), key)
    await size(broker)


@pytest.mark.parametrize("odd", ["", "resp_", "resp_G", "resp_1\n", "*", "x" * 100_000])
async def test_ids_of_no_response_ask_redis_nothing(broker: Broker, odd: str) -> None:
    store = RecordStore(broker.redis)
    assert await store.find(odd) is None
    assert not await store.forget(odd)


async def test_records_of_dead_gateways_end(broker: Broker) -> None:
    registry, store, background = Registry(broker.redis), RecordStore(broker.redis), Background("own")
    await registry.beat(GatewayCard(id="living", host="h", pid=1, url="http://h", streams=0))
    record = {name: await begun(store, f"resp_{index}", Origin(name, "toy", "r")) for index, name in enumerate(WRITERS)}
    item = {"id": "msg_1", "type": "message"}
    await store.append("resp_0", 2, [frame(2, "output_item.done", item=item), frame(3)])
    recorders = Recorders(store, registry, background)
    with background.beginning(record["own"]):
        for second in range(7):
            await recorders.check(float(second))
            assert len(await store.growing()) == 3
        await recorders.check(7.0)
    assert sorted(await store.growing()) == sorted([record["living"], record["own"]])
    [*_, last] = await store.read(record["dead"])
    event = unframed(last.frame)
    assert (last.number, event["sequence_number"], event["type"]) == (4, 4, "response.failed")
    assert (event["response"]["status"], event["response"]["output"]) == ("failed", [item])
    assert "has stopped" in event["response"]["error"]["message"]
    await recorders.check(8.0)
    assert record["own"] in await store.growing()  # it may have ended just now
    await recorders.check(9.0)
    assert list(await store.growing()) == [record["living"]]


WRITERS = ("dead", "living", "own")


async def test_what_cannot_be_ended_is_dropped(broker: Broker) -> None:
    registry, store, redis = Registry(broker.redis), RecordStore(broker.redis), cast(Any, broker.redis)
    vanished, text, nonsense = [await begun(store, f"resp_{index}") for index in range(3)]
    await redis.delete(vanished, text)
    await redis.set(text, "no stream", px=1000)
    await store.append("resp_2", 2, [b"no frame"])
    recorders = Recorders(store, registry, Background("own"))
    for second in range(8):
        await recorders.check(float(second))
    assert await store.growing() == {}
    assert not await redis.exists(vanished, text, nonsense)


@settings(max_examples=few(60), suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_whatever_is_tried_a_record_is_a_prefix_with_one_end(valkey: Broker, data: st.DataObject) -> None:
    """Two writers, one of which is late, and replies that are lost."""
    store = RecordStore(valkey.redis)
    await store.forget(ID)
    key = await begun(store)
    places = [2, 2]
    for _ in range(data.draw(st.integers(1, 12))):
        who = data.draw(st.integers(0, 1))
        if data.draw(st.booleans()):
            count = data.draw(st.integers(1, 3))
            frames = [frame(places[who] + index) for index in range(count)]
            written = await store.append(ID, places[who], frames)
            places[who] += count if written is AppendOutcome.OK and data.draw(st.booleans()) else 0
        else:
            await store.finish(key, places[who], frame(places[who], "failed", by=who))
    entries = await store.read(key)
    assert [entry.number for entry in entries] == list(range(len(entries)))
    assert [entry.last for entry in entries[:-1]] == [False] * (len(entries) - 1)
    assert [unframed(entry.frame)["sequence_number"] for entry in entries] == list(range(len(entries)))
