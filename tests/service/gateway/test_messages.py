"""The Messages API as Anthropic's own client sees it: text, thinking, tools, what ended it and what it took."""

import asyncio
import json
from typing import Any

import pytest
from anthropic import beta_async_tool
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from pydantic import BaseModel

from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish
from tests.service.scripted import EOG, MODEL, TEXTS, cut, fixed, speaking, stack
from tests.toy_format import ToyFormat

ASK: list[Any] = [{"role": "user", "content": "Say something."}]
TOOLS: list[Any] = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {}}}}]
CALL = '<call weather>{"city": "Zürich 😀"}</call>'
CALLED = {"city": "Zürich 😀"}


@pytest.fixture
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": ASK, **fields}


@pytest.mark.parametrize("width", [1, 2, 5])
async def test_a_stream_and_a_whole_message_hold_the_same_text(
    valkey_url: str, vocabulary: bytes, model: Model, width: int
) -> None:
    scripts = iter([speaking(model, text, width) for text in TEXTS for _ in range(2)])
    async with stack(valkey_url, vocabulary, lambda job: next(scripts)(job)) as s, s.anthropic as client:
        for text in TEXTS:
            whole = await client.messages.create(**asking())
            async with client.messages.stream(**asking()) as stream:
                streamed = await stream.get_final_message()
            for message in (whole, streamed):
                [block] = message.content
                assert isinstance(block, TextBlock)
                assert (block.text, message.stop_reason) == (text, "end_turn")
            assert whole.id.startswith("msg_")
            assert (whole.model, whole.role) == (MODEL, "assistant")


@pytest.mark.usefixtures("_toy")
@pytest.mark.parametrize("width", [1, 3, 100])
async def test_thinking_text_and_calls_are_blocks_in_their_order(
    valkey_url: str, vocabulary: bytes, model: Model, width: int
) -> None:
    text = f"<think>Look it up.</think>\n\nLet me see.\n{CALL}\n{CALL}\n"
    async with stack(valkey_url, vocabulary, speaking(model, text, width)) as s, s.anthropic as client:
        fields = asking(tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 1024})
        whole = await client.messages.create(**fields)
        async with client.messages.stream(**fields) as stream:
            streamed = await stream.get_final_message()
    for message in (whole, streamed):
        thinking, said, *calls = message.content
        assert isinstance(thinking, ThinkingBlock)
        assert isinstance(said, TextBlock)
        assert (thinking.thinking, said.text.strip()) == ("Look it up.", "Let me see.")
        assert thinking.signature
        assert all(isinstance(call, ToolUseBlock) and call.input == CALLED for call in calls)
        assert len({call.id for call in calls if isinstance(call, ToolUseBlock)}) == len(calls) == 2
        assert message.stop_reason == "tool_use"


@pytest.mark.usefixtures("_toy")
async def test_arguments_begin_empty_and_their_pieces_are_the_json(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, CALL)) as s, s.anthropic as client:
        events = [event async for event in await client.messages.create(**asking(tools=TOOLS, stream=True))]
    [start] = [event for event in events if event.type == "content_block_start"]
    assert isinstance(start.content_block, ToolUseBlock)
    assert (start.content_block.name, start.content_block.input) == ("weather", {})
    assert start.content_block.id.startswith("toolu_")
    pieces = [event.delta for event in events if event.type == "content_block_delta"]
    joined = "".join(piece.partial_json for piece in pieces if piece.type == "input_json_delta")
    assert json.loads(joined) == CALLED


@pytest.mark.usefixtures("_toy")
async def test_thinking_that_nobody_wants_to_read_is_only_signed(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    thinking: Any = {"type": "adaptive", "display": "omitted"}
    script = speaking(model, "<think>Greet.</think>Hi")
    async with stack(valkey_url, vocabulary, script) as s, s.anthropic as client:
        message = await client.messages.create(**asking(thinking=thinking))
    first, second = message.content
    assert isinstance(first, ThinkingBlock)
    assert isinstance(second, TextBlock)
    assert (first.thinking, second.text) == ("", "Hi")
    assert first.signature


@pytest.mark.usefixtures("_toy")
async def test_a_cut_off_call_is_not_made(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    """It is there as far as it came, as in a stream, and the stop reason does not ask for it to be made."""
    for text, finish, reason in (
        (f'{CALL}<call weather>{{"city": "Zü', Finish.LENGTH, "max_tokens"),
        (f'{CALL}<call weather>{{"city": "Zü', Finish.STOP, "end_turn"),
        ('<call weather>{"city": "Zü', Finish.STOP, "end_turn"),
    ):
        script = speaking(model, text, finish=finish)
        async with stack(valkey_url, vocabulary, script) as s, s.anthropic as client:
            whole = await client.messages.create(**asking(tools=TOOLS))
        assert whole.stop_reason == reason
        calls = [block.input for block in whole.content if isinstance(block, ToolUseBlock)]
        assert calls == [*[CALLED] * text.count(CALL), {}]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_ended_the_answer(valkey_url: str, vocabulary: bytes, model: Model, stream: bool) -> None:
    tokens = model.vocabulary.tokenize("one two STOP three")
    steps = [
        (fixed(*cut([*tokens, EOG], 2)), {}, ("end_turn", None)),
        (fixed(*cut(tokens, 2, Finish.LENGTH)), {}, ("max_tokens", None)),
        (fixed(*cut(tokens, 2, Finish.NONE)), {"stop_sequences": ["###", " STOP"]}, ("stop_sequence", " STOP")),
    ]
    scripts = iter([script for script, _, _ in steps])
    async with stack(valkey_url, vocabulary, lambda job: next(scripts)(job)) as s, s.anthropic as client:
        for _, fields, ended in steps:
            if stream:
                async with client.messages.stream(**asking(**fields)) as running:
                    message = await running.get_final_message()
            else:
                message = await client.messages.create(**asking(**fields))
            assert (message.stop_reason, message.stop_sequence) == ended


async def test_usage_is_true_from_the_first_event_on(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tokens = tuple(model.vocabulary.tokenize("Hello there"))
    script = fixed(Chunk(tokens=tokens, cached=20), Chunk(tokens=(), finish=Finish.STOP))
    async with stack(valkey_url, vocabulary, script) as s, s.anthropic as client:
        counted = await client.messages.count_tokens(model=MODEL, messages=ASK)
        whole = (await client.messages.create(**asking())).usage
        events = [event async for event in await client.messages.create(**asking(stream=True))]
        assert counted.input_tokens == len(s.verifier.jobs[0].prompt)
    assert events[0].type == "message_start"
    assert events[0].message.usage.input_tokens == counted.input_tokens
    assert events[-2].type == "message_delta"
    for usage in (whole, events[-2].usage):
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (counted.input_tokens - 20, 20)
        assert usage.output_tokens == len(tokens)


async def test_silence_is_filled_with_pings(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    gate = asyncio.Event()
    script = fixed(gate, *cut(model.vocabulary.tokenize("Hi"), 1))
    async with (
        stack(valkey_url, vocabulary, script, heartbeat_s=0.01) as s,
        s.session.post(f"{s.url}/v1/messages", json=asking(stream=True)) as response,
    ):
        await response.content.readuntil(b'event: ping\ndata: {"type":"ping"}\n\n' * 2)
        gate.set()
        assert b'"text":"Hi"' in await response.content.read()


class City(BaseModel):
    name: str
    lakes: list[str]


async def test_structured_answers_are_constrained_and_parsed(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking(model, '{"name": "Zürich", "lakes": ["Zürichsee"]}', 3)
    async with stack(valkey_url, vocabulary, script) as s, s.anthropic as client:
        message = await client.messages.parse(**asking(output_format=City))
        async with client.messages.stream(**asking(output_format=City)) as stream:
            streamed = await stream.get_final_message()
        assert message.parsed_output == streamed.parsed_output == City(name="Zürich", lakes=["Zürichsee"])
        assert all("lakes" in job.grammar for job in s.verifier.jobs)


@pytest.mark.usefixtures("_toy")
async def test_the_beta_client_runs_tools_until_the_answer_is_text(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    asked = []

    @beta_async_tool
    async def weather(city: str) -> str:
        """Tells the weather.

        Args:
            city: Where.
        """
        asked.append(city)
        return "Sunny."

    scripts = iter([speaking(model, f"I ask. {CALL}"), speaking(model, "It is sunny.")])
    async with stack(valkey_url, vocabulary, lambda job: next(scripts)(job)) as s, s.anthropic as client:
        fields = asking(tools=[weather], betas=["interleaved-thinking-2025-05-14"])
        message = await client.beta.messages.tool_runner(**fields).until_done()
        assert message.content[0].to_dict()["text"] == "It is sunny."
        assert asked == ["Zürich 😀"]
        prompt = b"".join(map(model.vocabulary.piece, s.verifier.jobs[1].prompt)).decode()
    assert prompt.index("I ask.") < prompt.index("Zürich 😀") < prompt.index("Sunny.")


async def test_our_own_fields_work_here_too(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tokens = tuple(model.vocabulary.tokenize("Hello there"))
    script = fixed(Chunk(tokens=tokens, sources=("d",) * len(tokens), drafted=2, accepted=2, finish=Finish.STOP))
    fields = asking(seed=5, speculative=True, return_token_ids=True, speculative_trace=True)
    async with stack(valkey_url, vocabulary, script) as s:
        async with s.session.post(f"{s.url}/v1/messages?beta=true", json=fields) as response:
            body = await response.json()
        text = await s.transcript("/v1/messages", **fields, stream=True)
    [last] = [json.loads(line[6:]) for line in text.split("\n") if '"type":"message_delta"' in line]
    for answer in (body, last):
        assert (answer["seed"], answer["token_ids"]) == (5, list(tokens))
        assert answer["speculative"]["accepted"] == 2
        assert [piece["source"] for piece in answer["trace"]] == ["d"] * len(tokens)
