"""Answers in the Responses dialect, as OpenAI's own client and types read them."""

import asyncio
from typing import Any

import pytest
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall, ResponseReasoningItem
from pydantic import BaseModel

from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, Job, TokenLogprob
from tests import golden
from tests.service.gateway.responses_events import events, kinds, official
from tests.service.scripted import EOG, MODEL, Step, cut, fixed, speaking, stack
from tests.toy_format import ToyFormat

TOOL: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False},
    "strict": True,
}
CALL = '<call weather>{"city": "Paris"}</call>'
MESSAGE = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())


def speaking_in_turn(model: Model, *texts: str) -> Any:
    rest = iter(texts)
    return lambda job: speaking(model, next(rest), 2)(job)


@pytest.mark.parametrize("text", ["Hello 😀 world", ""])
async def test_a_stream_ends_with_the_whole_answer(valkey_url: str, vocabulary: bytes, model: Model, text: str) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, text, 2)) as s, s.openai as client:
        whole = await client.responses.create(model=MODEL, input="Hi", extra_body={"seed": 5})
        stream = await client.responses.create(model=MODEL, input="Hi", stream=True, extra_body={"seed": 5})
        streamed = [event async for event in stream]
        found = events(await s.transcript("/responses", input="Hi", stream=True))
    assert whole.output_text == text
    assert whole.status == "completed"
    final: Any = streamed[-1]
    differ = {"id", "created_at", "output"}
    assert final.response.model_dump(exclude=differ) == whole.model_dump(exclude=differ)
    assert final.response.output_text == text
    growing = MESSAGE if text else [kind for kind in MESSAGE if kind != "output_text.delta"]
    assert kinds(found) == ["created", "in_progress", *growing, "completed"]
    assert "".join(event["delta"] for event in found if event["type"].endswith(".delta")) == text


async def test_the_client_s_stream_helper_works(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hello there", 1)) as s, s.openai as client:
        async with client.responses.stream(model=MODEL, input="Hi") as stream:
            snapshots = [event.snapshot async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert snapshots[-1] == final.output_text == "Hello there"


@pytest.mark.usefixtures("toy")
async def test_thinking_text_and_calls_are_items_of_their_own(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking(model, f"<think>Which?</think>I look.{CALL}{CALL}", 3)
    asked: dict[str, Any] = {"input": "Weather?", "tools": [TOOL], "seed": 5, "instructions": "Be kind."}
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        transcript = await s.transcript("/v1/responses", stream=True, **asked)
        async with client.responses.stream(
            model=MODEL, input="Weather?", tools=[TOOL], extra_body={"seed": 5}
        ) as stream:
            parsed = await stream.get_final_response()
    found = events(transcript)
    golden.check("responses-tools", transcript)
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    thinking = [kind.replace("output_text", "reasoning_text") for kind in MESSAGE]
    assert kinds(found) == ["created", "in_progress", *thinking, *MESSAGE, *call, *call, "completed"]
    response = official(found[-1]["response"])
    reasoning, message, first, second = response.output
    assert isinstance(reasoning, ResponseReasoningItem)
    assert [part.text for part in reasoning.content or []] == ["Which?"]
    assert message.type == "message"
    assert response.output_text == "I look."
    assert isinstance(first, ResponseFunctionToolCall)
    assert isinstance(second, ResponseFunctionToolCall)
    assert first.name == "weather"
    assert first.arguments == second.arguments == '{"city": "Paris"}'
    assert first.call_id != second.call_id
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"]
    assert response.usage is not None
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens
    assert [item.type for item in parsed.output] == [item.type for item in response.output]


@pytest.mark.usefixtures("toy")
async def test_a_call_s_result_goes_back_with_the_call(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking_in_turn(model, f"<think>Hm.</think>{CALL}", "Sunny.")
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        conversation: list[Any] = [{"role": "user", "content": "Weather?"}]
        first = await client.responses.create(model=MODEL, input=conversation, tools=[TOOL], store=False)
        [call] = [item for item in first.output if item.type == "function_call"]
        conversation += [item.model_dump(exclude_none=True) for item in first.output]
        result = [{"type": "input_text", "text": "warm"}]
        conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        second = await client.responses.create(model=MODEL, input=conversation, tools=[TOOL], store=False)
        prompt = b"".join(model.vocabulary.piece(token, special=True) for token in s.verifier.jobs[1].prompt).decode()
    assert second.output_text == "Sunny."
    assert "Paris" in prompt
    assert prompt.index("Weather?") < prompt.index("Paris") < prompt.index("warm")


@pytest.mark.usefixtures("toy")
async def test_an_answer_cut_at_its_limit_is_incomplete(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    texts = iter(["I look", f"{CALL}<call weather>{{"])
    script = lambda job: speaking(model, next(texts), 2, Finish.LENGTH)(job)  # noqa: E731
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        whole = await client.responses.create(model=MODEL, input="Hi", max_output_tokens=16)
        cut_call = events(await s.transcript("/v1/responses", input="Hi", stream=True, tools=[TOOL]))
        assert s.verifier.jobs[0].max_tokens == 16
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert (whole.output_text, whole.max_output_tokens) == ("I look", 16)
    last = cut_call[-1]
    assert last["type"] == "response.incomplete"
    assert [item["status"] for item in last["response"]["output"]] == ["completed", "incomplete"]
    # Clients make a call as soon as it is done, so one that was cut off never is.
    assert [event["output_index"] for event in cut_call if event["type"] == "response.output_item.done"] == [0]


class Place(BaseModel):
    city: str


async def test_a_required_output_is_a_grammar_and_parses(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, '{"city": "Oslo"}')) as s, s.openai as client:
        parsed = await client.responses.parse(model=MODEL, input="Where?", text_format=Place)
        loose = await client.responses.create(model=MODEL, input="Where?", text={"format": {"type": "json_object"}})
        strict, free = (job.grammar for job in s.verifier.jobs)
    assert parsed.output_parsed == Place(city="Oslo")
    assert '"city"' in strict
    assert free
    assert loose.text is not None
    assert loose.text.format is not None
    assert loose.text.format.type == "json_object"


@pytest.mark.usefixtures("toy")
async def test_logprobs_belong_to_the_text_and_to_nothing_else(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    tokens = model.vocabulary.tokenize("<think>Hm</think>é 😀!" + CALL)
    given = tuple(TokenLogprob(-0.5, ((token, -0.5), (5, float("-inf")))) for token in [*tokens, EOG])
    commits = [Chunk(tokens=(token,), logprobs=(one,)) for token, one in zip(tokens, given, strict=False)]
    script = fixed(*commits, Chunk(tokens=(EOG,), logprobs=given[-1:], finish=Finish.STOP))
    asked: dict[str, Any] = {"input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    async with stack(valkey_url, vocabulary, script) as s:
        found = events(await s.transcript("/v1/responses", stream=True, **asked))
        assert s.verifier.jobs[0].top_logprobs == 2
        plain = events(await s.transcript("/v1/responses", stream=True, input="Hi"))
        assert s.verifier.jobs[1].top_logprobs == -1
    [message] = [item for item in found[-1]["response"]["output"] if item["type"] == "message"]
    entries = message["content"][0]["logprobs"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == "é 😀!".encode()
    assert entries[0]["top_logprobs"][1]["logprob"] == -9999.0
    streamed = [e for event in found if event["type"] == "response.output_text.delta" for e in event["logprobs"]]
    assert streamed == entries
    assert not any(event["logprobs"] for event in plain if event["type"] == "response.output_text.delta")


@pytest.mark.usefixtures("toy")
async def test_sealed_thinking_comes_back_as_thinking(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking_in_turn(model, "<think>Secret plan.</think>Yes.", "No.")
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        include: Any = ["reasoning.encrypted_content"]
        first = await client.responses.create(model=MODEL, input="Hi", include=include, store=False)
        reasoning = first.output[0]
        assert isinstance(reasoning, ResponseReasoningItem)
        assert reasoning.encrypted_content
        kept = {"type": "reasoning", "id": reasoning.id, "summary": []}
        replayed: Any = [
            {"role": "user", "content": "Hi"},
            {**kept, "encrypted_content": reasoning.encrypted_content},
            {"role": "assistant", "content": "Yes."},
            {**kept, "encrypted_content": "another server's"},
            {"role": "assistant", "content": "Yes!"},
            {"role": "user", "content": "Sure?"},
        ]
        assert (await client.responses.create(model=MODEL, input=replayed)).output_text == "No."


async def test_usage_tells_the_truth(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    first = Chunk(tokens=tuple(model.vocabulary.tokenize("Hi")), cached=3)
    script = fixed(first, Chunk(tokens=(EOG,), finish=Finish.STOP))
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        usage = (await client.responses.create(model=MODEL, input="Hi", instructions="Be brief.")).usage
        counted = await client.responses.input_tokens.count(model=MODEL, input="Hi", instructions="Be brief.")
        assert usage is not None
        assert usage.input_tokens == counted.input_tokens == len(s.verifier.jobs[0].prompt)
    assert usage.input_tokens_details.cached_tokens == 3
    assert usage.output_tokens == 2
    assert usage.total_tokens == usage.input_tokens + 2


async def test_silence_is_filled_with_events_of_its_own(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """Some clients' idle timers do not see comments."""
    gate = asyncio.Event()
    script = fixed(gate, *cut([*model.vocabulary.tokenize("Hi"), EOG], 1))
    async with stack(valkey_url, vocabulary, script, heartbeat_s=0.01) as s:
        body = {"input": "Hi", "stream": True}
        async with s.session.post(f"{s.url}/v1/responses", json=body) as response:
            transcript = b""
            for _ in range(4):
                transcript += await response.content.readuntil(b"event: response.in_progress\n")
            gate.set()
            transcript += await response.content.read()
    found = events(transcript.decode())
    assert kinds(found) == ["created", "in_progress", *MESSAGE, "completed"]
    assert sum(event["type"] == "response.in_progress" for event in found) >= 4


async def test_a_failure_ends_the_stream_as_failed(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    last = Chunk(tokens=(), finish=Finish.ERROR, detail="Out of memory.")
    script = fixed(Chunk(tokens=tuple(model.vocabulary.tokenize("Hi"))), last)
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        found = events(await s.transcript("/v1/responses", input="Hi", stream=True))
        async with s.session.post(f"{s.url}/v1/responses", json={"input": "Hi"}) as response:
            assert response.status == 500
            assert (await response.json())["error"]["message"] == "Out of memory."
        stored = f"{s.url}/v1/responses/{found[-1]['response']['id']}"
        async with s.session.get(stored) as response:
            assert response.status == 404
        async with client.responses.stream(model=MODEL, input="Hi") as stream:
            assert [event.type async for event in stream][-1] == "response.failed"
    assert found[-1]["type"] == "response.failed"
    assert found[-1]["response"]["error"] == {"code": "server_error", "message": "Out of memory."}
    [message] = found[-1]["response"]["output"]
    assert (message["status"], message["content"][0]["text"]) == ("incomplete", "Hi")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_its_job(valkey_url: str, vocabulary: bytes, stream: bool) -> None:
    claimed = asyncio.Event()

    def script(_: Job) -> list[Step]:
        claimed.set()
        return [asyncio.Event()]

    async with stack(valkey_url, vocabulary, script) as s:
        body = {"input": "Hi", "stream": stream}
        request = asyncio.ensure_future(s.session.post(f"{s.url}/v1/responses", json=body))
        await claimed.wait()
        if stream:
            (await request).close()
        request.cancel()
        assert await s.terminal(s.verifier.jobs[0].request_id) is Finish.CANCELLED


async def test_text_frame_by_frame(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hello 😀 world", 2)) as s:
        golden.check("responses-text", await s.transcript("/v1/responses", input="Hi", stream=True, seed=5))
