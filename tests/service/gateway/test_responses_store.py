"""Going on from a stored response: by whom, for how long, and what of it."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from services.gateway.storage import response_store
from shared.model.llama.model import Model
from shared.wire import keys
from shared.wire.messages import Job
from tests.service.gateway.test_responses import TOOL
from tests.service.scripted import MODEL, Stack, speaking, stack
from tests.toy_format import ToyFormat


def prompt(model: Model, job: Job) -> str:
    return b"".join(model.vocabulary.piece(token, special=True) for token in job.prompt).decode()


async def stored_keys(s: Stack) -> list[bytes]:
    clients: Any = s.clients.redis
    return list(await clients.keys(keys.response("*", "*")))


async def test_a_conversation_goes_on_from_a_response(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """Over any number of turns, with the new turn's instructions only."""
    texts = iter(["Blue.", "Red.", "Green."])
    async with stack(valkey_url, vocabulary, lambda job: speaking(model, next(texts))(job)) as s, s.openai as client:
        first = await client.responses.create(model=MODEL, input="One?", instructions="Speak French.")
        second = await client.responses.create(
            model=MODEL, input="Two?", instructions="Speak Greek.", previous_response_id=first.id
        )
        stream = await client.responses.create(model=MODEL, input="Three?", previous_response_id=second.id, stream=True)
        [event async for event in stream]
        rendered = [prompt(model, job) for job in s.verifier.jobs]
    assert second.previous_response_id == first.id
    assert "French" in rendered[0]
    assert "French" not in rendered[1]
    positions = [rendered[2].index(text) for text in ("One?", "Blue.", "Two?", "Red.", "Three?")]
    assert positions == sorted(positions)
    assert "Greek" not in rendered[2]


async def test_a_tool_s_result_may_come_without_its_call(
    valkey_url: str, vocabulary: bytes, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())
    texts = iter(['<call weather>{"city": "Paris"}</call>', "Sunny."])
    async with stack(valkey_url, vocabulary, lambda job: speaking(model, next(texts))(job)) as s, s.openai as client:
        first = await client.responses.create(model=MODEL, input="Weather?", tools=[TOOL])
        [call] = first.output
        assert call.type == "function_call"
        result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "warm"}]
        second = await client.responses.create(
            model=MODEL,
            input=result,
            previous_response_id=first.id,
            tools=[TOOL],
        )
        rendered = prompt(model, s.verifier.jobs[1])
    assert second.output_text == "Sunny."
    assert rendered.index("Weather?") < rendered.index("Paris") < rendered.index("warm")


async def test_an_item_of_a_response_can_be_referred_to(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Blue.")) as s, s.openai as client:
        first = await client.responses.create(model=MODEL, input="One?")
        item: Any = {"type": "item_reference", "id": first.output[0].id}
        for reference in (item, {"id": item["id"]}):
            asked: Any = [{"role": "user", "content": "Hm?"}, reference, {"role": "user", "content": "Why?"}]
            await client.responses.create(model=MODEL, input=asked)
            rendered = prompt(model, s.verifier.jobs[-1])
            assert rendered.index("Hm?") < rendered.index("Blue.") < rendered.index("Why?")
        for unknown in ("msg_0", f"{item['id']}9", "nonsense"):
            with pytest.raises(openai.NotFoundError, match=f"'{unknown}' not found"):
                await client.responses.create(model=MODEL, input=[{"type": "item_reference", "id": unknown}])


async def test_a_stored_response_is_what_the_client_got(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Blue.")) as s, s.openai as client:
        first = await client.responses.create(model=MODEL, input="One?", metadata={"topic": "colours"})
        assert (await client.responses.retrieve(first.id)).model_dump() == first.model_dump()
        assert first.metadata == {"topic": "colours"}
        await client.responses.delete(first.id)
        for gone in (first.id, "resp_0", "nonsense"):
            with pytest.raises(openai.NotFoundError, match="not found"):
                await client.responses.retrieve(gone)
            with pytest.raises(openai.NotFoundError, match="not found"):
                await client.responses.delete(gone)
            with pytest.raises(openai.BadRequestError) as caught:
                await client.responses.create(model=MODEL, input="Two?", previous_response_id=gone)
            assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_nothing_is_kept_of_what_should_not_be(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Blue.")) as s, s.openai as client:
        first = await client.responses.create(model=MODEL, input="One?", store=False)
        assert await stored_keys(s) == []
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model=MODEL, input="Two?", previous_response_id=first.id)


async def test_a_response_is_its_key_s_alone(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Blue."), api_key=["one", "other"]) as s:

        def client(key: str) -> AsyncOpenAI:
            return AsyncOpenAI(base_url=f"{s.url}/v1", api_key=key, max_retries=0)

        async with client("one") as one, client("other") as other:
            first = await one.responses.create(model=MODEL, input="One?")
            with pytest.raises(openai.NotFoundError):
                await other.responses.retrieve(first.id)
            with pytest.raises(openai.NotFoundError):
                await other.responses.delete(first.id)
            with pytest.raises(openai.BadRequestError):
                await other.responses.create(model=MODEL, input="Two?", previous_response_id=first.id)
            reference: Any = [{"type": "item_reference", "id": first.output[0].id}]
            with pytest.raises(openai.NotFoundError):
                await other.responses.create(model=MODEL, input=reference)
            await one.responses.create(model=MODEL, input="Two?", previous_response_id=first.id)
            headers = {"x-api-key": "one"}
            async with s.session.get(f"{s.url}/v1/responses/{first.id}", headers=headers) as response:
                assert response.status == 200
        assert not any(b"one" in key or b"other" in key for key in await stored_keys(s))


async def test_an_answer_that_cannot_be_kept_is_still_given(
    valkey_url: str, vocabulary: bytes, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_store, "MAX_ENTRY_BYTES", 100)
    async with stack(valkey_url, vocabulary, speaking(model, "Blue.")) as s, s.openai as client:
        first = await client.responses.create(model=MODEL, input="One?")
        assert first.output_text == "Blue."
        assert await stored_keys(s) == []
