"""A Redis that works, but refuses for a while: streams wait and go on, new requests are told to come again, and no
process ends. On a real server, for every reason that it may have."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from services.verifier import worker
from services.verifier.readers import Readers
from shared.errors import StartError
from shared.fleet.registry import Registry
from shared.model.llama.model import Model
from shared.process import lifecycle
from shared.wire import keys
from shared.wire.broker import DISCONNECTED, connect
from shared.wire.connection import RefusedError
from shared.wire.jobs import JobStore
from shared.wire.messages import Chunk, Finish
from tests.chaos.proxy import Proxy
from tests.patience import HANG_S
from tests.refusals import DEBUG, REFUSALS, refusing
from tests.server import Server, valkey_server
from tests.service.scripted import EOG, HI, MESSAGES, fixed, stack
from tests.service.verifier.test_verifier import ENDLESS, reference
from tests.stack import client, verifier
from tests.toy_loaded import toy
from tests.toys import drafter_card, job

Logs = list[Any]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with valkey_server("127.0.0.1", *DEBUG) as one:
        yield one


@pytest.fixture
def url(server: Server) -> str:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    return server.url


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lifecycle, worker):
        monkeypatch.setattr(module, "HEARTBEAT_S", 0.05)


async def hears(logs: Logs, event: str, reader: str) -> None:
    async with asyncio.timeout(HANG_S):
        while not any((line["event"], line.get("reader")) == (event, reader) for line in logs):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_gateway_stays_its_stream_goes_on_and_new_requests_may_come_again(
    url: str, vocabulary: bytes, model: Model, code: str
) -> None:
    gate = asyncio.Event()
    script = fixed(Chunk(tokens=(HI,)), gate, Chunk(tokens=(EOG,), finish=Finish.STOP))
    with capture_logs() as logs:
        async with stack(url, vocabulary, script) as s:
            body = {"messages": MESSAGES, "stream": True}
            async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
                await response.content.readuntil(b'"delta":{"content"')
                async with refusing(code, url):
                    async with s.session.post(f"{s.url}/v1/chat/completions", json={"messages": MESSAGES}) as refused:
                        assert refused.status == 503
                        assert int(refused.headers["Retry-After"]) >= 1
                        assert (await refused.json())["error"]["code"] == "service_unavailable"
                    await hears(logs, "redis_disconnected", "heartbeat")
                await hears(logs, "redis_reconnected", "heartbeat")
                gate.set()
                rest = await response.content.read()
            assert b'"finish_reason":"stop"' in rest
            assert rest.endswith(b"data: [DONE]\n\n")
            assert not s.stopped.is_set()


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_verifier_stays_and_its_answer_goes_on(url: str, model_path: Path, code: str) -> None:
    with capture_logs() as logs:
        slow = toy(model_path, lambda rows: time.sleep(0.002))
        async with verifier(url, slow), client(url, model_path) as one:
            await one.cards(1)
            stream = one.stream(one.job([5, 6, 7], ENDLESS, 150))
            tokens = [*(await anext(stream)).tokens]
            async with refusing(code, url):
                await hears(logs, "redis_disconnected", "committer")
                await hears(logs, "redis_disconnected", "registry")
            last = Finish.NONE
            async with asyncio.timeout(HANG_S):
                async for chunk in stream:
                    tokens += chunk.tokens
                    last = chunk.finish
            assert (last, tokens) == (Finish.LENGTH, reference(one, [5, 6, 7], 150))


async def test_a_verifier_whose_rights_shrink_says_what_it_may_not_do_and_goes_on_once_it_may(
    url: str, model_path: Path
) -> None:
    admin: Any = redis.Redis.from_url(url)
    admin.execute_command("ACL", "SETUSER", "service", "on", ">secret", "~*", "&*", "+@all")
    own = url.replace("redis://", "redis://service:secret@")
    with capture_logs() as logs:
        slow = toy(model_path, lambda rows: time.sleep(0.002))
        async with verifier(own, slow), client(url, model_path) as one:
            await one.cards(1)
            stream = one.stream(one.job([5, 6, 7], ENDLESS, 150))
            tokens = [*(await anext(stream)).tokens]
            admin.execute_command("ACL", "SETUSER", "service", "-evalsha", "-eval", "-set")
            await hears(logs, "redis_forbidden", "committer")
            await hears(logs, "redis_forbidden", "registry")
            admin.execute_command("ACL", "SETUSER", "service", "+@all")
            async with asyncio.timeout(HANG_S):
                async for chunk in stream:
                    tokens += chunk.tokens
            assert tokens == reference(one, [5, 6, 7], 150)
    told = {line["reader"]: (line["user"], line["command"]) for line in logs if line["event"] == "redis_forbidden"}
    assert told["committer"] == ("service", "evalsha")
    assert told["registry"] == ("service", "set")
    admin.close()


async def test_a_service_that_may_not_begin_ends_with_a_sentence(url: str) -> None:
    with redis.Redis.from_url(url) as admin:
        admin.execute_command("ACL", "SETUSER", "little", "on", ">secret", "~*", "+ping", "+client")
    async with connect(url.replace("redis://", "redis://little:secret@")) as broker:
        begin = JobStore(broker.redis, broker.blocking, "toy").ensure_group
        with pytest.raises(StartError, match=r"--redis user little: its rights in Redis do not allow .*acl --update"):
            await lifecycle.insist("start", begin, asyncio.Event())


@pytest.mark.parametrize("code", ["NOREPLICAS", "OOM"])
async def test_whoever_cannot_say_that_it_lives_does_not_count_as_dead(url: str, code: str) -> None:
    """Cards expire meanwhile, although their processes live and the server answers reads."""
    async with connect(url) as broker:
        raw: Any = broker.redis
        store, registry = JobStore(broker.redis, broker.blocking, "toy"), Registry(broker.redis)
        await registry.beat(drafter_card("drafter-1"))
        await Registry(broker.redis).beat(drafter_card("drafter-2"))
        await store.submit(job(), 4, "gateway-1")
        await raw.pexpire(keys.card("drafter-2"), 1)
        readers = Readers(store, registry)
        async with refusing(code, url):
            for second in range(20):
                with pytest.raises(RefusedError, match=code):
                    await readers.check(float(second))
            while await broker.redis.get(keys.card("drafter-2")):
                pass
            with pytest.raises(RefusedError, match=code):
                await registry.announced()
        assert [card.id for card in await registry.announced()] == ["drafter-1"]
        assert await store.live() == ["r1"]


async def test_connections_leave_a_server_that_was_demoted(url: str) -> None:
    """A failover gives the address to another server, but breaks no connection to the old one."""
    with valkey_server() as other:
        ports = [int(one.rpartition(":")[2].partition("/")[0]) for one in (url, other.url)]
        async with Proxy("127.0.0.1", ports[0]) as proxy, connect(f"redis://127.0.0.1:{proxy.port}/0") as broker:
            store = JobStore(broker.redis, broker.blocking, "toy")
            await store.ensure_group()
            assert await store.next_job("v", 10) is None
            async with refusing("READONLY", url):
                proxy.forward("127.0.0.1", ports[1])
                with pytest.raises(DISCONNECTED):
                    await store.next_job("v", 10)  # a blocking read is not repeated, but its connection is gone
                await store.submit(job(), 10)
                assert await store.next_job("v", 10) is None  # makes the group
                assert await store.next_job("v", 10) == "r1"
