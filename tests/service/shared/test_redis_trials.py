"""What clients of Redis have been caught at: replies that reach another, tasks that cannot be cancelled, commands that
are carried out twice, connections that are dead in silence. Against a real server."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from shared.wire import keys
from shared.wire.broker import DISCONNECTED, Broker, connect
from shared.wire.jobs import Append, Claim, JobStore
from shared.wire.messages import Chunk, Finish
from shared.wire.reading import read_log
from shared.wire.scripts import ScriptOutcome
from tests.chaos.proxy import Proxy
from tests.patience import HANG_S
from tests.server import valkey_server
from tests.toys import job

T = TypeVar("T")


@asynccontextmanager
async def behind(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before the server, and the address through it."""
    server = urlsplit(url)
    async with Proxy(str(server.hostname), int(server.port or 0)) as proxy:
        yield proxy, f"redis://127.0.0.1:{proxy.port}/0"


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """As the committer and the cancellations do: once more until it gets through."""
    while True:
        with suppress(*DISCONNECTED):
            return await call()


async def connections(broker: Broker) -> int:
    """How many were ever made to the server."""
    return int((await broker.redis.info("stats"))["total_connections_received"])


async def test_of_a_thousand_cancelled_commands_no_reply_reaches_another(valkey: Broker) -> None:
    source = random.Random(1)
    redis: Any = valkey.redis
    for index in range(100):
        await redis.set(f"k{index}", f"v{index}", px=60_000)

    async def ask(index: int) -> bool:
        return bool(await redis.get(f"k{index}") == f"v{index}".encode())

    for _ in range(20):
        doomed = [asyncio.create_task(ask(source.randrange(100))) for _ in range(50)]
        others = [asyncio.create_task(ask(source.randrange(100))) for _ in range(20)]
        for task in source.sample(doomed, len(doomed)):
            for _ in range(source.randrange(3)):
                await asyncio.sleep(0)  # some are cancelled before they send, some while they wait for the reply
            task.cancel()
        assert all(await asyncio.gather(*others))
        ended = await asyncio.gather(*doomed, return_exceptions=True)
        assert {one for one in ended if not isinstance(one, asyncio.CancelledError)} <= {True}
    assert await asyncio.gather(*map(ask, range(100))) == [True] * 100


@pytest.mark.parametrize("blocking", [False, True])
async def test_whoever_is_cancelled_while_it_connects_ends_at_once(valkey_url: str, blocking: bool) -> None:
    """Each time 80 µs later, from before the first byte until after the reply."""
    loop = asyncio.get_running_loop()
    for step in range(40):
        async with connect(valkey_url) as broker:
            client: Any = broker.blocking if blocking else broker.redis
            await client.connection_pool.disconnect()
            wait = client.xread({"nothing": "0"}, block=5000) if blocking else client.ping()
            task = asyncio.create_task(wait)
            loop.call_later(step * 80e-6, task.cancel)
            done, _ = await asyncio.wait([task], timeout=1)
            assert done


async def test_a_write_whose_reply_is_lost_is_sent_again_and_done_once(valkey: Broker, valkey_url: str) -> None:
    async with behind(valkey_url) as (proxy, url), connect(url) as broker:
        store = JobStore(broker.redis, broker.blocking, "toy")
        await store.ensure_group()
        proxy.lose(every=5)  # the first replies of each connection are its own business
        for index in range(8):
            name = f"r{index}"
            assert await insist(partial(store.submit, job(name), 100)) in (ScriptOutcome.OK, ScriptOutcome.DUPLICATE)
            claim = await insist(partial(store.claim, name, "v"))
            assert isinstance(claim, Claim)
            for base in range(3):
                finish = Finish.STOP if base == 2 else Finish.NONE
                append = Append(
                    request_id=name, epoch=claim.epoch, base=base, chunk=Chunk(tokens=(base + 4,), finish=finish)
                )
                outcomes = await insist(partial(store.commit, [append]))
                assert outcomes in ([ScriptOutcome.OK], [ScriptOutcome.DUPLICATE], [ScriptOutcome.FINISHED])
        assert proxy.lost > 5
    for index in range(8):
        log = await read_log(valkey.redis, f"r{index}")
        assert [(base, chunk.tokens) for base, chunk in log] == [(0, (4,)), (1, (5,)), (2, (6,))]
    assert await JobStore(valkey.redis, valkey.blocking, "toy").live() == []


async def test_a_reader_that_waits_for_long_keeps_its_connection_and_says_nothing(valkey: Broker) -> None:
    store = JobStore(valkey.redis, valkey.blocking, "toy")
    await store.ensure_group()
    await store.next_job("v", 10)
    before = await connections(valkey)
    for _ in range(3):
        assert await store.next_job("v", 300) is None
    assert await connections(valkey) == before
    # redis-py would give up after 5 s and ask again in silence.
    pool: Any = valkey.blocking
    assert pool.connection_pool.connection_kwargs["socket_timeout"] is None
    assert pool.connection_pool.connection_kwargs["retry"].get_retries() == 0


async def test_a_connection_that_died_in_silence_is_given_up_and_nothing_is_lost(
    valkey: Broker, valkey_url: str
) -> None:
    """As behind a firewall that forgot it: no reset and no reply."""
    async with behind(valkey_url) as (proxy, url), connect(url) as broker:
        store = JobStore(broker.redis, broker.blocking, "toy")
        await store.ensure_group()
        proxy.part()
        asyncio.get_running_loop().call_later(2.2, proxy.heal)  # after the first try has timed out
        async with asyncio.timeout(HANG_S):
            assert await insist(partial(store.submit, job(), 10)) in (ScriptOutcome.OK, ScriptOutcome.DUPLICATE)
    assert await JobStore(valkey.redis, valkey.blocking, "toy").live() == ["r1"]


async def test_a_busy_loop_gets_a_large_reply_with_one_command(
    valkey: Broker, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a vocabulary of 262,144 tokens while a crowd is served. The whole takes far longer than 0.3 s."""
    monkeypatch.setattr("shared.wire.broker._SILENCE_S", 0.3)
    large = random.Random(1).randbytes(5 << 20)
    await valkey.redis.set("large", large, px=60_000)
    before = (await valkey.redis.info("commandstats")).get("cmdstat_get", {}).get("calls", 0)

    async def hold() -> None:
        while True:
            time.sleep(0.02)  # noqa: ASYNC251 - each turn of the loop takes its time
            await asyncio.sleep(0)

    async with connect(valkey_url) as broker:
        busy = asyncio.create_task(hold())
        assert await broker.redis.get("large") == large
        busy.cancel()
    assert (await valkey.redis.info("commandstats"))["cmdstat_get"]["calls"] == before + 1


async def test_a_stream_that_somebody_trimmed_loses_entries_and_breaks_nothing(valkey: Broker) -> None:
    store = JobStore(valkey.redis, valkey.blocking, "toy")
    await store.ensure_group()
    redis: Any = valkey.redis
    for index in range(6):
        await redis.xadd(keys.jobs("toy"), {"r": f"r{index}"})
        assert await store.next_job("v1", 10) == f"r{index}"
    await redis.xtrim(keys.jobs("toy"), maxlen=2, approximate=False)
    assert await store.orphans("v2") == ["r4", "r5"]
    assert await store.orphans("v2") == ["r4", "r5"]
    await store.submit(job("held"), 10)
    claim = await store.claim("held", "v1")
    assert isinstance(claim, Claim)
    await redis.xtrim(keys.jobs("toy"), maxlen=0, approximate=False)
    last = Chunk(tokens=(4,), finish=Finish.STOP)
    append = Append(request_id="held", epoch=claim.epoch, base=0, chunk=last)
    assert await store.commit([append]) == [ScriptOutcome.OK]
    assert await store.orphans("v2") == []


async def fill(broker: Broker) -> list[str]:
    """Take all memory there is; returns the keys that hold it."""
    keys: list[str] = []
    for size in (100_000, 1000, 1):
        with suppress(*DISCONNECTED):
            while True:
                await broker.redis.set(f"fill{len(keys)}", b"x" * size, px=60_000)
                keys.append(f"fill{len(keys)}")
    return keys


async def test_a_full_server_hands_nothing_over_and_goes_on_when_there_is_room() -> None:
    with valkey_server("127.0.0.1", "--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        async with connect(server.url) as broker:
            store = JobStore(broker.redis, broker.blocking, "toy", lease_ms=60_000)
            await store.ensure_group()
            await store.submit(job(), 10)
            await store.submit(job("waiting"), 10)
            claim = await store.claim("r1", "v1")
            assert isinstance(claim, Claim)
            filled = await fill(broker)
            append = Append(request_id="r1", epoch=claim.epoch, base=0, chunk=Chunk(tokens=(4,)))
            for forbidden in (
                lambda: store.commit([append]),
                lambda: store.submit(job("r2"), 10),
                lambda: store.claim("waiting", "v2"),
            ):
                with pytest.raises(DISCONNECTED):
                    await forbidden()
            assert await store.claim("r1", "v2") is ScriptOutcome.HELD
            assert await broker.redis.hget(keys.job("r1"), "epoch") == b"1"
            await broker.redis.delete(*filled)
            assert await store.claim("r1", "v2") is ScriptOutcome.HELD
            assert await store.commit([append]) == [ScriptOutcome.OK]
            assert await store.submit(job("r2"), 10) is ScriptOutcome.OK
