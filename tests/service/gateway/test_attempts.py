"""A client that tries again with its Idempotency-Key is never served twice at once, and never refused for long."""

import asyncio
from typing import Any, cast

import pytest

from services.gateway.http.attempts import TTL_MS
from shared.fleet.registry import HEARTBEAT_S
from shared.model.llama.model import Model
from shared.wire import keys
from shared.wire.messages import Chunk, Finish, Job
from tests.patience import HANG_S
from tests.service.scripted import HI, MESSAGES, MODEL, Stack, Step, speaking, stack


async def ask(s: Stack, key: str, caller: str = "one", **fields: Any) -> tuple[int, dict[str, Any]]:
    headers = {"Idempotency-Key": key, "Authorization": f"Bearer {caller}"}
    body = {"model": MODEL, "messages": MESSAGES, **fields}
    async with s.session.post(f"{s.url}/v1/chat/completions", json=body, headers=headers) as response:
        answer = await response.json()
        assert response.status != 409 or int(response.headers["Retry-After"]) >= 1
        return response.status, answer


async def test_a_second_attempt_is_refused_while_the_first_runs_and_served_after(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    claimed, going = asyncio.Event(), asyncio.Event()

    def script(job: Job) -> list[Step]:
        claimed.set()
        return [going, Chunk(tokens=(HI,), finish=Finish.LENGTH)]

    async with stack(valkey_url, vocabulary, script) as s:
        first = asyncio.create_task(ask(s, "k1"))
        await claimed.wait()
        status, body = await ask(s, "k1")
        assert (status, body["error"]["code"]) == (409, "idempotency_conflict")
        status, body = await ask(s, "k1", max_tokens=3)
        assert (status, body["error"]["code"]) == (422, "idempotency_mismatch")
        others = [asyncio.create_task(ask(s, "k2")), asyncio.create_task(ask(s, "k1", caller="two"))]
        going.set()
        assert [status for status, _ in await asyncio.gather(first, *others)] == [200] * 3
        assert (await ask(s, "k1"))[0] == 200
        assert (await ask(s, "k1", max_tokens=3))[0] == 200
        assert await cast(Any, s.clients.redis).keys("*:attempt:*") == []


async def test_a_client_that_left_may_try_again_at_once(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    claimed, calls = asyncio.Event(), [0]

    def script(job: Job) -> list[Step]:
        claimed.set()
        calls[0] += 1
        return [asyncio.Event()] if calls[0] == 1 else list(speaking(model, "Hi")(job))

    async with stack(valkey_url, vocabulary, script) as s:
        first = asyncio.create_task(ask(s, "k"))
        await claimed.wait()
        first.cancel()
        await asyncio.wait([first])
        redis = cast(Any, s.clients.redis)
        async with asyncio.timeout(HANG_S):
            while await redis.keys("*:attempt:*"):  # noqa: ASYNC110 - the gateway lets go of it
                await asyncio.sleep(0.01)


async def test_a_gateway_that_died_holds_no_key_for_long(valkey_url: str, vocabulary: bytes) -> None:
    assert TTL_MS >= 3 * HEARTBEAT_S * 1000
    claimed = asyncio.Event()

    def script(job: Job) -> list[Step]:
        claimed.set()
        return [asyncio.Event()]

    async with stack(valkey_url, vocabulary, script) as s:
        first = asyncio.create_task(ask(s, "k"))
        await claimed.wait()
        [name] = await cast(Any, s.clients.redis).keys(keys.attempt("*"))
        assert 0 < await cast(Any, s.clients.redis).pttl(name) <= TTL_MS
        await cast(Any, s.clients.redis).pexpire(name, 60_000)
        async with asyncio.timeout(HANG_S):
            while await cast(Any, s.clients.redis).pttl(name) > TTL_MS:  # noqa: ASYNC110 - until the next heartbeat
                await asyncio.sleep(0.01)
        first.cancel()


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\tbed", "ü"])
async def test_keys_that_are_none(valkey_url: str, vocabulary: bytes, key: str) -> None:
    async with stack(valkey_url, vocabulary) as s:
        status, body = await ask(s, key)
        assert (status, body["error"]["code"]) == (400, "invalid_idempotency_key")
