"""Responses in the background end once, and for everybody who reads them, whatever fails."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from services.gateway.dialects.responses import following
from services.gateway.storage import records
from shared.model.llama.model import Model
from shared.wire import keys
from shared.wire.messages import Chunk, Finish
from tests.chaos.fleet import Server
from tests.patience import HANG_S
from tests.ports import free_port
from tests.server import valkey_server
from tests.service.gateway.background import (
    KEY,
    TEXT,
    another_gateway,
    begun,
    halting,
    has,
    idle,
    poll,
    read,
    ready,
    texts,
    until,
)
from tests.service.gateway.responses_events import events
from tests.service.scripted import MODEL, Stack, fixed, speaking, stack
from tests.stack import Processes


async def test_a_failure_is_an_end_too(valkey_url: str, vocabulary: bytes) -> None:
    failing = fixed(Chunk(tokens=(), finish=Finish.ERROR, detail="The engine broke."))
    async with stack(valkey_url, vocabulary, failing) as s:
        response_id = (await begun(s))["id"]
        last = (await read(s, response_id))[-1]
        assert (last["type"], last["response"]["error"]["message"]) == ("response.failed", "The engine broke.")
        assert await poll(s, response_id) == last["response"]


async def refuses(s: Stack) -> bool:
    return not await ready(s, s.url)


async def test_a_gateway_that_drains_waits_for_it_and_its_readers(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt)) as s:
        response_id = (await begun(s))["id"]
        reader = asyncio.create_task(read(s, response_id))
        await until(lambda: has(s, response_id, "in_progress"))
        s.stop.set()
        await until(lambda: refuses(s))
        async with s.session.get(
            f"{s.url}/v1/responses/{response_id}", params={"stream": "true"}, headers=KEY
        ) as refused:
            assert refused.status == 503
        halt.set()
        assert (await reader)[-1]["type"] == "response.completed"
        await asyncio.wait_for(s.stopped.wait(), HANG_S)


async def test_a_gateway_that_has_to_stop_says_so(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    halt = asyncio.Event()
    async with (
        stack(valkey_url, vocabulary, halting(model, halt), drain=0.1) as s,
        another_gateway(valkey_url) as other,
    ):
        response_id = (await begun(s))["id"]
        s.stop.set()
        last = (await read(s, response_id, url=other))[-1]
        assert last["type"] == "response.failed"
        assert "shutting down" in last["response"]["error"]["message"]
        await asyncio.wait_for(s.stopped.wait(), HANG_S)
        halt.set()


async def test_an_answer_that_is_too_long_to_keep_fails(
    valkey_url: str, vocabulary: bytes, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "services.gateway.service.RecordStore", lambda redis: records.RecordStore(redis, max_entry_bytes=5000)
    )
    async with stack(valkey_url, vocabulary, speaking(model, TEXT)) as s:
        response_id = (await begun(s))["id"]
        found = await read(s, response_id)
        assert found[-1]["type"] == "response.failed"
        assert "larger than a background response may be" in found[-1]["response"]["error"]["message"]
        assert 0 < len(texts(found)) < len(TEXT)


async def test_a_reader_behind_the_end_does_not_wait(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """Redis came back as it was before some of the events, and then the gateway that wrote them died."""
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt), heartbeat_s=0.1) as s:
        response_id = (await begun(s))["id"]
        await until(lambda: has(s, response_id, "in_progress"))
        place = f"{s.url}/v1/responses/{response_id}"
        async with s.session.get(place, params={"stream": "true"}, headers=KEY) as response:
            while b"output_text.delta" not in await response.content.readline():
                pass
            redis: Any = s.clients.redis
            [key] = await redis.keys(keys.record("*", response_id))
            async with redis.pipeline(transaction=True) as pipeline:
                pipeline.delete(key).xadd(key, {"last": "event: early\n\n"}, id="3-0")
                await pipeline.execute()
            rest = (await asyncio.wait_for(response.text(), HANG_S)).split("\n\n")
        assert '"type":"response.failed"' in [part for part in rest if part][-1]
        assert "early" not in "".join(rest)
        halt.set()
        await until(lambda: idle(s))  # the writer stops, for its record has an end


async def test_what_cannot_be_kept_from_the_start_is_refused(
    valkey_url: str, vocabulary: bytes, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "services.gateway.service.RecordStore", lambda redis: records.RecordStore(redis, max_entry_bytes=100)
    )
    async with stack(valkey_url, vocabulary, speaking(model, TEXT)) as s, s.openai as client:
        with pytest.raises(openai.InternalServerError, match="no room"):
            await client.responses.create(model=MODEL, input="Hi", background=True)
        await until(lambda: idle(s))


async def test_a_redis_that_comes_back_empty_ends_it(vocabulary: bytes, model: Model) -> None:
    halt = asyncio.Event()
    with valkey_server() as server:
        async with stack(server.url, vocabulary, halting(model, halt)) as s:
            response_id = (await begun(s))["id"]
            await until(lambda: has(s, response_id, "in_progress"))
            place = f"{s.url}/v1/responses/{response_id}"
            async with s.session.get(place, params={"stream": "true"}, headers=KEY) as response:
                redis: Any = s.clients.redis
                await redis.flushall()
                last = events(await asyncio.wait_for(response.text(), HANG_S), -1)[-1]
            assert last["type"] == "response.failed"
            assert last["response"]["error"]["message"].startswith("The response is gone")
            async with s.session.get(f"{s.url}/v1/responses/{response_id}", headers=KEY) as response:
                assert response.status == 404
            await until(lambda: idle(s))
            halt.set()


async def test_a_redis_that_stays_away_ends_the_stream_and_not_the_response(
    vocabulary: bytes, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_AWAY_S", 0.5)
    monkeypatch.setattr(following, "_PAUSE_S", 0.1)
    halt = asyncio.Event()
    with valkey_server() as server:
        async with stack(server.url, vocabulary, halting(model, halt), drain=0.1, heartbeat_s=0.2) as s:
            response_id = (await begun(s))["id"]
            await until(lambda: has(s, response_id, "in_progress"))
            async with s.session.get(
                f"{s.url}/v1/responses/{response_id}", params={"stream": "true"}, headers=KEY
            ) as response:
                await response.content.readline()
                server.stop()
                text = (await asyncio.wait_for(response.read(), HANG_S)).decode()
            assert "event: error\n" in text
            assert '"code":"service_unavailable"' in text
            assert "response.failed" not in text
            halt.set()


async def test_a_redis_that_comes_back_as_it_was_costs_nothing(vocabulary: bytes, model: Model, tmp_path: Path) -> None:
    halt = asyncio.Event()
    server = Server(tmp_path)
    await server.start()
    try:
        async with stack(server.url, vocabulary, halting(model, halt)) as s:
            response_id = (await begun(s))["id"]
            await until(lambda: has(s, response_id, "in_progress"))
            place = f"{s.url}/v1/responses/{response_id}"
            async with s.session.get(place, params={"stream": "true"}, headers=KEY) as response:
                await server.stop(gently=True)
                await server.start()
                halt.set()
                found = events(await asyncio.wait_for(response.text(), HANG_S), -1)
        assert texts(found) == TEXT
        assert found[-1]["type"] == "response.completed"
    finally:
        await server.stop(gently=False)


async def test_a_gateway_that_is_killed_leaves_nobody_waiting(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """Its verifiers free the request; here another gateway ends the record, for readers and for those who poll."""
    halt = asyncio.Event()
    processes = Processes(valkey_url)
    async with stack(valkey_url, vocabulary, halting(model, halt)) as s:
        try:
            port = free_port()
            process, doomed = processes.start("gateway", "--port", str(port)), f"http://127.0.0.1:{port}"
            await until(lambda: ready(s, doomed))
            response_id = (await begun(s, url=doomed))["id"]
            await until(lambda: has(s, response_id, "in_progress"))
            reader = asyncio.create_task(read(s, response_id))
            process.kill()
            found = await asyncio.wait_for(reader, HANG_S)
        finally:
            processes.end()
        assert [event["type"] for event in found if "response" in event][3:] == ["response.failed"]
        assert "has stopped" in found[-1]["response"]["error"]["message"]
        assert TEXT.startswith(texts(found))
        assert texts(found)
        assert await poll(s, response_id) == found[-1]["response"]
        assert await read(s, response_id, 3) == found[4:]
        halt.set()
