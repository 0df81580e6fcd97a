"""What happens to requests when clients, verifiers, Redis or the gateway itself go away."""

import asyncio
from typing import Any, cast

import aiohttp
import openai
import pytest

from shared.model.llama.model import Model
from shared.wire import keys
from shared.wire.messages import Chunk, Finish, GatewayCard, Job
from tests.service.scripted import EOG, HI, MESSAGES, MODEL, Step, cut, fixed, stack

FAILURES = [
    (Chunk(tokens=(), finish=Finish.ERROR, detail="Out of memory."), 500, "Out of memory."),
    (Chunk(tokens=(), finish=Finish.DEADLINE), 504, "The request's deadline passed."),
    (Chunk(tokens=(), finish=Finish.CANCELLED), 499, "The request was cancelled."),
]


@pytest.mark.parametrize(("last", "status", "message"), FAILURES)
async def test_a_failure_is_a_frame_in_a_stream_and_a_status_otherwise(
    valkey_url: str, vocabulary: bytes, model: Model, last: Chunk, status: int, message: str
) -> None:
    script = fixed(Chunk(tokens=tuple(model.vocabulary.tokenize("Hi"))), last)
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        *_, content, error, done = await s.frames()
        assert content["choices"][0]["delta"] == {"content": "Hi"}
        assert (error["error"]["message"], done) == (message, "[DONE]")
        got, body = await s.post()
        assert (got, body["error"]["message"]) == (status, message)
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match=message[:10]):
            [chunk async for chunk in stream]


async def test_a_log_that_redis_lost_ends_the_stream_with_an_error(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, lambda _: [Chunk(tokens=(HI,)), asyncio.Event()]) as s:
        body = {"messages": MESSAGES, "stream": True}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            await response.content.readuntil(b'"delta":{"content"')
            await cast(Any, s.clients.redis).delete(keys.job(s.verifier.jobs[0].request_id))
            rest = (await response.content.read()).decode()
    assert '"code":"request_lost"' in rest
    assert rest.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_its_job(valkey_url: str, vocabulary: bytes, stream: bool) -> None:
    claimed = asyncio.Event()

    def script(_: Job) -> list[Step]:
        claimed.set()
        return [Chunk(tokens=(HI,)), asyncio.Event()]

    async with stack(valkey_url, vocabulary, script) as s:
        async with aiohttp.ClientSession() as session:
            body = {"messages": MESSAGES, "stream": stream}
            request = asyncio.ensure_future(session.post(f"{s.url}/v1/chat/completions", json=body))
            await claimed.wait()
            if stream:
                response = await request
                await response.content.readuntil(b'"delta":{"content"')
                response.close()
            request.cancel()
        assert await s.terminal(s.verifier.jobs[0].request_id) is Finish.CANCELLED


async def test_silence_is_filled_with_comments(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    gate = asyncio.Event()
    script = fixed(gate, *cut(model.vocabulary.tokenize("Hi"), 1))
    async with stack(valkey_url, vocabulary, script, heartbeat_s=0.01) as s:
        body = {"messages": MESSAGES, "stream": True}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            await response.content.readuntil(b": ping\n\n: ping\n\n")
            gate.set()
            assert b'"content":"Hi"' in await response.content.read()


async def test_a_gateway_that_stops_finishes_what_runs(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    gate = asyncio.Event()
    script = fixed(
        *cut(model.vocabulary.tokenize("Hi"), 1, Finish.NONE),
        gate,
        Chunk(tokens=(EOG,), finish=Finish.STOP),
    )
    async with stack(valkey_url, vocabulary, script) as s:
        body = {"messages": MESSAGES, "stream": True}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            await response.content.readuntil(b'"content":"Hi"')
            assert any(isinstance(one, GatewayCard) for one in await s.registry.list())
            s.stop.set()
            async with s.session.get(f"{s.url}/ready") as probe:
                assert (probe.status, (await probe.json())["missing"]) == (503, ["gateway is draining"])
            status, refused = await s.post()
            assert (status, refused["error"]["code"]) == (503, "draining")
            gate.set()
            assert (await response.content.read()).endswith(b"data: [DONE]\n\n")
        await s.stopped.wait()
        assert not any(isinstance(one, GatewayCard) for one in await s.registry.list())
