"""Responses in the background: a client may leave, and it or another goes on reading behind any event."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from shared.model.llama.model import Model
from shared.wire.scripts import ScriptOutcome
from tests.service.gateway.background import (
    KEY,
    TEXT,
    another_gateway,
    begun,
    ended,
    halting,
    has,
    poll,
    read,
    running,
    stored,
    texts,
    until,
)
from tests.service.gateway.responses_events import events, official
from tests.service.scripted import MODEL, speaking, stack


async def test_one_polls_until_it_is_done(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    halt, work = asyncio.Event(), asyncio.Event()
    steps = halting(model, halt)
    async with stack(valkey_url, vocabulary, lambda job: [work, *steps(job)]) as s, s.openai as client:
        response = await client.responses.create(model=MODEL, input="Hi", background=True)
        assert (response.status, response.background, response.output) == ("queued", True, [])
        assert (await client.responses.retrieve(response.id)).status == "queued"
        work.set()
        await until(lambda: has(s, response.id, "in_progress"))
        halt.set()
        done = await ended(s, response.id)
    assert done["status"] == "completed"
    assert official(done).output_text == TEXT
    assert done["usage"]["output_tokens"] == len(model.vocabulary.tokenize(TEXT)) + 1


async def test_a_client_that_leaves_cancels_nothing_and_goes_on_where_it_was(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt)) as s, s.openai as client:
        seen: list[Any] = []
        stream = await client.responses.create(model=MODEL, input="Hi", background=True, stream=True)
        async for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        halt.set()
        resumed = await client.responses.retrieve(
            seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number
        )
        seen += [event async for event in resumed]
        assert s.verifier.outcomes[-1] is ScriptOutcome.OK
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert [event.type for event in seen[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == TEXT
    assert [event.type for event in seen].count("response.completed") == 1
    assert seen[-1].type == "response.completed"
    assert seen[-1].response.output_text == TEXT


async def test_whatever_the_cut_nothing_is_lost_or_repeated(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """Behind every event, from both gateways, while it runs and afterwards, by query and by header."""
    halt = asyncio.Event()
    async with (
        stack(valkey_url, vocabulary, halting(model, halt)) as s,
        another_gateway(valkey_url) as other,
        asyncio.TaskGroup() as group,
    ):
        response_id = (await begun(s))["id"]
        early = [
            group.create_task(read(s, response_id, after, url=url, header=header))
            for after in (-1, 0, 1)
            for url in (s.url, other)
            for header in (after >= 0, False)
        ]
        await until(lambda: has(s, response_id, "in_progress"))
        halt.set()
        whole = await read(s, response_id)
        assert texts(whole) == TEXT
        for task in early:
            found = await task
            assert found == whole[-len(found) :]
            assert found[0]["sequence_number"] <= 2
        for after in range(len(whole) - 1):
            for url, header in ((s.url, False), (other, True)):
                assert await read(s, response_id, after, url=url, header=header) == whole[after + 1 :]
        query = {"stream": "true", "starting_after": str(len(whole) - 1)}
        async with s.session.get(f"{s.url}/v1/responses/{response_id}", params=query, headers=KEY) as response:
            assert (response.status, await response.text()) == (204, "")  # an EventSource comes back no more
        assert [event["type"] for event in whole].count("response.completed") == 1
        assert await poll(s, response_id, url=other) == whole[-1]["response"]
        # A client that reconnects by itself has the query of its first try.
        query = {"stream": "true", "starting_after": "1"}
        place, headers = f"{s.url}/v1/responses/{response_id}", {**KEY, "Last-Event-ID": "7"}
        async with s.session.get(place, params=query, headers=headers) as response:
            assert events(await response.text(), 7) == whole[8:]


async def test_cancelling_ends_it_once_and_frees_its_place(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    halt = asyncio.Event()
    async with (
        stack(valkey_url, vocabulary, halting(model, halt), max_requests=1) as s,
        another_gateway(valkey_url) as other,
        s.openai as client,
        AsyncOpenAI(base_url=f"{other}/v1", api_key="none", max_retries=0) as elsewhere,
    ):
        response = await client.responses.create(model=MODEL, input="Hi", background=True)
        reader = asyncio.create_task(read(s, response.id))
        await until(lambda: has(s, response.id, "in_progress"))
        cancelled = await elsewhere.responses.cancel(response.id)
        assert (cancelled.status, cancelled.error) == ("cancelled", None)
        assert TEXT.startswith(cancelled.output_text)
        assert cancelled.output_text
        seen = await reader
        assert [event["type"] for event in seen if "response" in event][3:] == ["response.failed"]
        assert seen[-1]["response"]["status"] == "cancelled"
        assert await client.responses.cancel(response.id) == cancelled
        assert await client.responses.retrieve(response.id) == cancelled
        halt.set()
        await client.responses.create(model=MODEL, input="There is room again.")
        assert ScriptOutcome.CANCELLED in s.verifier.outcomes
        metrics = await (await s.session.get(f"{s.url}/metrics")).text()
        assert 'draftmesh_requests_total{model="smol",outcome="cancelled"} 1.0' in metrics


async def test_a_waiting_one_can_be_cancelled(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt)) as s, s.openai as client:
        running, waiting = [await client.responses.create(model=MODEL, input="Hi", background=True) for _ in range(2)]
        assert (await client.responses.cancel(waiting.id)).status == "cancelled"
        halt.set()
        assert (await ended(s, running.id))["status"] == "completed"


async def test_only_what_runs_in_the_background_can_be_cancelled(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Blue.")) as s, s.openai as client:
        plain = await client.responses.create(model=MODEL, input="Hi")
        with pytest.raises(openai.BadRequestError, match="Only background responses"):
            await client.responses.cancel(plain.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.cancel("resp_0")
        with pytest.raises(openai.BadRequestError, match="can be streamed again"):
            await client.responses.retrieve(plain.id, stream=True)
        done = await ended(s, (await begun(s))["id"])
        assert (await client.responses.cancel(done["id"])).status == "completed"


async def test_deleting_ends_it_and_forgets_it(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt)) as s, s.openai as client:
        response = await client.responses.create(model=MODEL, input="Hi", background=True)
        reader = asyncio.create_task(read(s, response.id))
        await until(lambda: has(s, response.id, "in_progress"))
        await client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(response.id)
        last = (await reader)[-1]
        assert last["type"] == "response.failed"
        assert last["response"]["error"]["message"].startswith("The response is gone")
        halt.set()
        await client.responses.create(model=MODEL, input="Next.", store=False)
        assert ScriptOutcome.CANCELLED in s.verifier.outcomes
        # The count of all bytes is all that is left.
        assert not [key for key in await stored(s) if b":record:" in key or b":response:" in key]
        done = await ended(s, (await begun(s))["id"])
        await client.responses.delete(done["id"])
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(done["id"], stream=True)


async def test_only_its_key_can_read_or_end_it(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt), api_key=["one", "other"]) as s:

        def client(key: str) -> AsyncOpenAI:
            return AsyncOpenAI(base_url=f"{s.url}/v1", api_key=key, max_retries=0)

        async with client("one") as one, client("other") as other:
            response = await one.responses.create(model=MODEL, input="Hi", background=True)
            for call in (
                other.responses.retrieve(response.id),
                other.responses.retrieve(response.id, stream=True),
                other.responses.cancel(response.id),
                other.responses.delete(response.id),
            ):
                with pytest.raises(openai.NotFoundError):
                    await call
            halt.set()
            stream = await one.responses.retrieve(response.id, stream=True)
            assert [event async for event in stream][-1].type == "response.completed"


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "99", "9" * 30, "²"])
async def test_there_is_nothing_behind_what_never_was(
    valkey_url: str, vocabulary: bytes, model: Model, after: str
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Blue.")) as s:
        done = await ended(s, (await begun(s))["id"])
        query = {"stream": "true", "starting_after": after}
        async with s.session.get(f"{s.url}/v1/responses/{done['id']}", params=query, headers=KEY) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] == "starting_after"


async def test_one_goes_on_from_it_when_it_is_complete(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt)) as s, s.openai as client:
        first = await client.responses.create(model=MODEL, input="One?", background=True)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model=MODEL, input="Two?", previous_response_id=first.id)
        assert (caught.value.code, caught.value.param) == ("previous_response_not_complete", "previous_response_id")
        halt.set()
        stream = await client.responses.retrieve(first.id, stream=True)
        assert [event async for event in stream][-1].type == "response.completed"
        second = await client.responses.create(model=MODEL, input="Two?", previous_response_id=first.id)
        assert second.previous_response_id == first.id


async def test_it_counts_as_a_request(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """In admission, idempotency and health, until it has ended."""
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt), max_requests_per_key=1) as s, s.openai as client:
        headers = {"Idempotency-Key": "k"}
        response = await client.responses.create(model=MODEL, input="Hi", background=True, extra_headers=headers)
        with pytest.raises(openai.RateLimitError):
            await client.responses.create(model=MODEL, input="Hi", background=True)
        with pytest.raises(openai.ConflictError):
            await client.responses.create(model=MODEL, input="Hi", background=True, extra_headers=headers)
        assert await running(s) == 1
        halt.set()
        await ended(s, response.id)
        await client.responses.create(model=MODEL, input="Hi", extra_headers=headers)
        assert await running(s) == 0


async def test_silence_is_filled(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    halt = asyncio.Event()
    async with stack(valkey_url, vocabulary, halting(model, halt), heartbeat_s=0.05) as s:
        response_id = (await begun(s))["id"]
        async with s.session.get(
            f"{s.url}/v1/responses/{response_id}", params={"stream": "true"}, headers=KEY
        ) as response:
            text = ""
            while ": ping\n\n" not in text:
                text += (await response.content.readline()).decode()
            halt.set()
            text += (await response.read()).decode()
        assert texts(events(text, -1)) == TEXT  # pings have no number
