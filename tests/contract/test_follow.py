"""Following logs: every token once and in order, whenever one starts to read."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import ResponseError

from services.gateway.storage.follow import BACKLOG, Feed, LogFollower, LogLost
from shared.wire import codec, keys
from shared.wire.broker import Broker
from shared.wire.jobs import Append, JobStore
from shared.wire.messages import Chunk, Finish
from tests.following import follow
from tests.patience import HANG_S
from tests.toys import job


@pytest.fixture
async def follower(broker: Broker) -> AsyncIterator[LogFollower]:
    follower = LogFollower(broker.redis, broker.blocking, "gateway")
    task = asyncio.create_task(follower.run())
    yield follower
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def start(broker: Broker, name: str) -> JobStore:
    store = JobStore(broker.redis, broker.blocking, "toy")
    await store.submit(job(name), 100)
    await store.claim(name, "v")
    return store


async def commit(store: JobStore, name: str, base: int, tokens: tuple[int, ...], finish: Finish = Finish.NONE) -> None:
    await store.commit([Append(request_id=name, epoch=1, base=base, chunk=Chunk(tokens=tokens, finish=finish))])


async def tokens_of(follower: LogFollower, name: str, offset: int = 0) -> list[int]:
    return [token async for chunk in follow(follower, name, offset) for token in chunk.tokens]


async def test_a_reader_from_the_start_and_a_late_one_see_the_same(broker: Broker, follower: LogFollower) -> None:
    store = await start(broker, "r1")
    early = asyncio.create_task(tokens_of(follower, "r1"))
    await commit(store, "r1", 0, (4, 5))
    await commit(store, "r1", 2, (6,))
    await commit(store, "r1", 3, (7,), Finish.STOP)
    assert await early == [4, 5, 6, 7] == await tokens_of(follower, "r1")


async def test_reading_resumes_at_an_offset(broker: Broker, follower: LogFollower) -> None:
    store = await start(broker, "r1")
    await commit(store, "r1", 0, (4, 5))
    await commit(store, "r1", 2, (6, 7))
    await commit(store, "r1", 4, (), Finish.STOP)
    assert await tokens_of(follower, "r1", 2) == [6, 7]
    assert await tokens_of(follower, "r1", 4) == []


async def test_many_logs_share_one_reader(broker: Broker, follower: LogFollower) -> None:
    names = [f"r{index}" for index in range(30)]
    stores = [await start(broker, name) for name in names]
    readers = [asyncio.create_task(tokens_of(follower, name)) for name in names]
    for offset in range(3):
        finish = Finish.LENGTH if offset == 2 else Finish.NONE
        for index, (store, name) in enumerate(zip(stores, names, strict=True)):
            await commit(store, name, offset, (index + offset,), finish)
    assert await asyncio.gather(*readers) == [[index, index + 1, index + 2] for index in range(30)]


async def test_a_log_that_went_back_in_time_is_an_error_and_no_token_comes_twice(
    broker: Broker, follower: LogFollower
) -> None:
    store = await start(broker, "r1")
    await commit(store, "r1", 0, (4, 5))
    seen: list[int] = []

    async def read() -> None:
        async for chunk in follow(follower, "r1"):
            seen.extend(chunk.tokens)
            await broker.redis.pipeline(transaction=False).delete(keys.log("r1"), keys.job("r1")).execute()  # type: ignore[attr-defined]
            again = await start(broker, "r1")
            await commit(again, "r1", 0, (8, 9, 10))

    with pytest.raises(LogLost):
        await asyncio.wait_for(read(), HANG_S)
    assert seen == [4, 5]


async def test_a_rubbish_entry_ends_the_reading_with_an_error(broker: Broker, follower: LogFollower) -> None:
    await start(broker, "r1")
    await broker.redis.xadd(keys.log("r1"), {"c": b"rubbish"}, id="1-1")  # type: ignore[attr-defined]
    with pytest.raises(LogLost, match="undecodable"):
        await asyncio.wait_for(tokens_of(follower, "r1"), HANG_S)


async def test_a_reader_that_leaves_is_forgotten(broker: Broker, follower: LogFollower) -> None:
    await start(broker, "r1")
    reader = asyncio.create_task(tokens_of(follower, "r1"))
    await asyncio.sleep(0)  # one step: it joins
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert not follower._feeds
    assert not follower._cursors


async def test_a_lost_log_is_noticed_while_others_go_on(
    broker: Broker, follower: LogFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.storage.follow.BLOCK_MS", 50)
    lost, busy = await start(broker, "lost"), await start(broker, "busy")
    await commit(lost, "lost", 0, (4,))
    reader = asyncio.create_task(tokens_of(follower, "lost"))
    other = asyncio.create_task(tokens_of(follower, "busy"))
    await broker.redis.pipeline(transaction=False).delete(keys.log("lost"), keys.job("lost")).execute()  # type: ignore[attr-defined]
    offset = 0
    while not reader.done():
        await commit(busy, "busy", offset, (offset,))
        offset += 1
    with pytest.raises(LogLost, match="gone"):
        await reader
    await commit(busy, "busy", offset, (), Finish.STOP)
    assert await other == list(range(offset))


async def test_an_answer_that_ended_in_a_log_which_is_lost_is_not_waited_for(
    broker: Broker, follower: LogFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.storage.follow.BLOCK_MS", 50)
    store = await start(broker, "r1")
    await commit(store, "r1", 0, (4,))
    await commit(store, "r1", 1, (5,), Finish.STOP)
    await broker.redis.delete(keys.log("r1"))
    with pytest.raises(LogLost, match="ended"):
        await asyncio.wait_for(tokens_of(follower, "r1"), HANG_S)


async def test_a_log_is_not_lost_because_nothing_could_be_read() -> None:
    feed = Feed("r1", 0, lambda: None, lambda feed: None)
    for read in (True, False, False):
        feed.hear(b"finished", read)
    assert feed.take() == []
    feed.deliver([(b"1-1", {b"c": codec.encode(Chunk(tokens=(4,)))})])
    feed.hear(b"finished", True)  # more may follow
    assert [chunk.tokens for chunk in feed.take()] == [(4,)]
    feed.hear(b"finished", True)
    with pytest.raises(LogLost, match="ended"):
        feed.take()


@pytest.mark.parametrize("reply", [None, ResponseError("WRONGTYPE")])
async def test_a_log_whose_job_is_gone_or_is_no_job_is_lost(reply: object) -> None:
    feed = Feed("r1", 0, lambda: None, lambda feed: None)
    feed.hear(reply, False)
    with pytest.raises(LogLost, match="gone"):
        feed.take()


async def test_a_log_is_read_no_further_than_a_slow_reader_can_take_and_then_to_its_end(
    broker: Broker, follower: LogFollower
) -> None:
    store, count = await start(broker, "r1"), 3 * BACKLOG
    appends = [Append(request_id="r1", epoch=1, base=base, chunk=Chunk(tokens=(base,))) for base in range(count)]
    await store.commit(appends)
    await commit(store, "r1", count, (), Finish.STOP)
    stirred = asyncio.Event()
    feed = follower.join("r1", stirred.set)
    await stirred.wait()
    # The other log was read after this one, so this one's backlog is what it stays.
    await start(broker, "r2")
    await broker.redis.xadd(keys.log("r2"), {"c": codec.encode(Chunk(tokens=(1,), finish=Finish.STOP))}, id="1-1")  # type: ignore[attr-defined]
    assert await tokens_of(follower, "r2") == [1]
    first = feed.take()
    assert BACKLOG <= len(first) < 2 * BACKLOG
    tokens = [token for chunk in first for token in chunk.tokens]
    while len(tokens) < count:
        stirred.clear()
        tokens += [token for chunk in feed.take() for token in chunk.tokens]
        if len(tokens) < count:
            await stirred.wait()
    assert tokens == list(range(count))
    follower.leave(feed)
