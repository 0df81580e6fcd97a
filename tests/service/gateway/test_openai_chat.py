"""Chat as the official client sees it: calls, thinking, required outputs, usage, choices, silence."""

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, Job
from tests.service.scripted import MESSAGES, MODEL, Script, Step, cut, fixed, speaking, stack
from tests.toy_format import ToyFormat

FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}]
ASKED: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS}
TWO_CALLS = (
    '<think>Two.</think>Let me look.<call weather>{"city": "Wien"}</call><call weather>{"city": "Graz 😀"}</call>'
)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())


@pytest.mark.parametrize("width", [1, 3, 100])
async def test_calls_streamed_and_whole(valkey_url: str, vocabulary: bytes, model: Model, width: int) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, TWO_CALLS, width)) as s, s.openai as client:
        whole = (await client.chat.completions.create(**ASKED)).choices[0]
        stream = await client.chat.completions.create(**ASKED, stream=True)
        chunks = [chunk async for chunk in stream]
    deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    names = [call for call in deltas if call.function and call.function.name]
    assert [(call.index, call.type, call.function and call.function.arguments) for call in names] == [
        (0, "function", ""),
        (1, "function", ""),
    ]
    assert len({call.id for call in names}) == 2
    assert all((call.id or "").startswith("call_") for call in names)
    assert all(call.id is None for call in deltas if call not in names)
    streamed = ["".join((c.function and c.function.arguments) or "" for c in deltas if c.index == n) for n in (0, 1)]
    assert [json.loads(arguments)["city"] for arguments in streamed] == ["Wien", "Graz 😀"]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Let me look."
    assert whole.message.content == "Let me look."
    assert [call.function.arguments for call in _calls(whole)] == streamed
    assert whole.finish_reason == chunks[-1].choices[0].finish_reason == "tool_calls"


def _calls(choice: Any) -> list[Any]:
    return list(choice.message.tool_calls or ())


async def test_an_answer_of_calls_only_has_no_content(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "<call weather>{}</call>")) as s, s.openai as client:
        whole = await client.chat.completions.create(**ASKED)
    assert whole.choices[0].message.content is None
    assert whole.usage is not None
    assert whole.usage.completion_tokens > 0


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.LENGTH])
async def test_a_call_that_was_cut_off(valkey_url: str, vocabulary: bytes, model: Model, finish: Finish) -> None:
    """It is shown as far as it came, and the finish reason does not ask for it to be made."""
    script = speaking(model, 'So.<call weather>{"city": "W', finish=finish)
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        choice = (await client.chat.completions.create(**ASKED)).choices[0]
    assert [call.function.arguments for call in _calls(choice)] == ['{"city": "W']
    assert (choice.message.content, choice.finish_reason) == ("So.", finish)


async def test_the_next_turn_holds_the_call_and_its_result(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """As the target wrote them: its cache of the first turn holds."""
    texts = iter(['<call weather>{"city": "Wien"}</call>', "Rain."])
    async with stack(valkey_url, vocabulary, lambda job: speaking(model, next(texts))(job)) as s, s.openai as client:
        first = (await client.chat.completions.create(**ASKED)).choices[0].message
        [call] = first.tool_calls or []
        result = {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "12 degrees"}]}
        turn: Any = first.model_dump(exclude_none=True)
        second = await client.chat.completions.create(**{**ASKED, "messages": [*MESSAGES, turn, result]})
        jobs = s.verifier.jobs
    assert second.choices[0].message.content == "Rain."
    assert second.choices[0].finish_reason == "stop"
    prompt = _text(model, jobs[1])
    assert '<call weather>{"city": "Wien"}</call>' in prompt
    assert prompt.index("Wien") < prompt.index("12 degrees")


def _text(model: Model, job: Job) -> str:
    return b"".join(model.vocabulary.piece(token, special=True) for token in job.prompt).decode()


@pytest.mark.parametrize("way", [{"continue_final_message": True, "add_generation_prompt": False}, {}])
async def test_an_assistant_s_message_is_continued(
    valkey_url: str, vocabulary: bytes, model: Model, way: dict[str, Any]
) -> None:
    start = {"role": "assistant", "content": "Surely, ", **({} if way else {"prefix": True})}
    async with stack(valkey_url, vocabulary, speaking(model, "yes")) as s:
        status, body = await s.post(messages=[*MESSAGES, start], **way)
        prompt = _text(model, s.verifier.jobs[0])
    assert (status, body["choices"][0]["message"]["content"]) == (200, "yes")
    assert prompt.endswith("<|im_start|>assistant\nSurely, ")


@pytest.mark.parametrize(
    "field",
    [
        {"structured_outputs": {"choice": ["yes", 'no "never"']}},
        {"regex": "[ab]+"},
        {"grammar": 'root ::= "a" | "b"'},
        {"ebnf": 'root ::= "a" | "b"'},
        {"lark": 'start: "a" | "b"'},
        {"structured_outputs": {"json": {"type": "object"}}},
        {"response_format": {"type": "json_object"}},
    ],
)
async def test_a_required_output_of_any_kind_reaches_the_verifier(
    valkey_url: str, vocabulary: bytes, model: Model, field: dict[str, Any]
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "a")) as s:
        assert (await s.post(**field))[0] == 200
        assert s.verifier.jobs[0].grammar


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ({"regex": "("}, "regex"),
        ({"grammar": "root ::= missing"}, "grammar"),
        ({"lark": "start: missing"}, "lark"),
        ({"response_format": {"type": "json_object", "schema": {"type": "nothing"}}}, "response_format.schema"),
    ],
)
async def test_an_output_that_does_not_compile_is_refused_by_name(
    valkey_url: str, vocabulary: bytes, field: dict[str, Any], param: str
) -> None:
    async with stack(valkey_url, vocabulary) as s:
        status, body = await s.post(stream=True, **field)
    assert status == 400
    assert body["error"]["param"].startswith(param)


THOUGHT = "<think>I wonder.</think>Yes."


async def test_thinking_is_told_apart_and_counted(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    options: Any = {"include_usage": True}
    asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES}
    async with stack(valkey_url, vocabulary, speaking(model, THOUGHT)) as s, s.openai as client:
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True, stream_options=options)
        chunks = [chunk async for chunk in stream]
    message: Any = whole.choices[0].message
    deltas: list[Any] = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert message.reasoning_content == "I wonder."
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "I wonder."
    assert message.content == "".join(delta.content or "" for delta in deltas) == "Yes."
    assert not hasattr(message, "reasoning")
    usage = chunks[-1].usage
    assert usage == whole.usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    counted = len(model.vocabulary.tokenize("<think>I wonder."))
    assert usage.completion_tokens_details.reasoning_tokens == counted


@pytest.mark.parametrize("field", [{"include_reasoning": False}, {"reasoning": {"exclude": True}}])
async def test_thinking_may_be_left_out(
    valkey_url: str, vocabulary: bytes, model: Model, field: dict[str, Any]
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, THOUGHT)) as s:
        _, body = await s.post(**field)
        frames = await s.frames(**field)
    assert "reasoning_content" not in body["choices"][0]["message"]
    assert "wonder" not in json.dumps(frames)
    assert body["choices"][0]["message"]["content"] == "Yes."


class City(BaseModel):
    """A required answer."""

    name: str
    population: int


async def test_a_required_object_is_parsed(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking(model, '{"name": "Wien", "population": 2}')
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        whole = await client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=City)
        assert whole.choices[0].message.parsed == City(name="Wien", population=2)
        async with client.chat.completions.stream(model=MODEL, messages=MESSAGES, response_format=City) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.parsed == City(name="Wien", population=2)
        grammars = [job.grammar for job in s.verifier.jobs]
    assert grammars[0] == grammars[1]
    assert "population" in grammars[0]


async def test_what_an_answer_took_in_everybody_s_words(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tokens = tuple(model.vocabulary.tokenize("Hi there, you"))
    script = fixed(
        Chunk(tokens=tokens[:1], cached=3, reason="no drafts"),
        Chunk(tokens=tokens[1:3], drafted=3, accepted=1, tried=2),
        Chunk(tokens=tokens[3:], drafted=1, accepted=0, tried=1, finish=Finish.LENGTH),
    )
    async with stack(valkey_url, vocabulary, script) as s:
        _, body = await s.post()
        frames = await s.frames()
    for end in (body, frames[-2]):
        timings = end["timings"]
        assert timings["prompt_n"] + timings["cache_n"] == body["usage"]["prompt_tokens"]
        assert (timings["cache_n"], timings["predicted_n"]) == (3, len(tokens))
        assert (timings["draft_n"], timings["draft_n_accepted"]) == (4, 1)
        assert timings["prompt_ms"] > 0
        assert timings["predicted_ms"] >= 0
        assert end["metrics"]["speculative_decoding"] == {
            "mean_acceptance_length": 1.5,
            "draft_acceptance_rate": 0.25,
            "acceptance_histogram": [1, 1],
            "num_spec_steps": 2,
            "num_draft_tokens": 4,
            "num_accepted_tokens": 1,
        }
    assert all("timings" not in frame for frame in frames[:-2])


async def test_usage_so_far_with_every_chunk(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "one two three")) as s:
        frames = await s.frames(stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [frame["usage"]["completion_tokens"] for frame in frames[:-1]]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == counts[-2] > 1
    assert all(frame["usage"]["total_tokens"] > frame["usage"]["prompt_tokens"] for frame in frames[1:-1])


async def test_equal_requests_at_once_each_get_an_answer(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    texts = iter(["one", "two", "three", "four"])
    async with stack(valkey_url, vocabulary, lambda job: speaking(model, next(texts))(job)) as s, s.openai as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES}
        answers: list[ChatCompletion] = await asyncio.gather(
            *(client.chat.completions.create(**asked) for _ in range(4))
        )
    assert sorted(answer.choices[0].message.content or "" for answer in answers) == ["four", "one", "three", "two"]
    assert len({answer.id for answer in answers}) == 4


async def test_a_call_withheld_until_its_name_is_known_is_no_silence(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    gate = asyncio.Event()
    begun, rest = "<call wea", "ther>{}</call>"
    script: Script = fixed(
        *cut(model.vocabulary.tokenize(begun), 1, Finish.NONE), gate, *cut(model.vocabulary.tokenize(rest), 1)
    )
    async with stack(valkey_url, vocabulary, script, heartbeat_s=0.01) as s:
        body = {"messages": MESSAGES, "stream": True, "tools": TOOLS}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            before = await response.content.readuntil(b": ping\n\n: ping\n\n")
            gate.set()
            after = await response.content.read()
    assert b"wea" not in before
    assert b'"name":"weather"' in after


async def test_an_error_between_a_call_s_fragments_is_raised(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    steps: list[Step] = cut(model.vocabulary.tokenize('<call weather>{"ci'), 2, Finish.NONE)
    script = fixed(*steps, Chunk(tokens=(), finish=Finish.ERROR, detail="Out of memory."))
    async with stack(valkey_url, vocabulary, script) as s, s.openai as client:
        stream = await client.chat.completions.create(**ASKED, stream=True)
        with pytest.raises(openai.APIError, match="Out of memory") as caught:
            [chunk async for chunk in stream]
        assert caught.value.code == "generation_failed"
        with pytest.raises(openai.InternalServerError, match="Out of memory"):
            await client.chat.completions.create(**ASKED)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
async def test_the_path_with_and_without_its_version(
    valkey_url: str, vocabulary: bytes, model: Model, path: str
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        answer = json.loads(await s.transcript(path, messages=MESSAGES))
    assert answer["choices"][0]["message"]["content"] == "Hi"
