"""Messages streams frame by frame, and that they do not depend on how tokens were split into commits."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.models.served_model import Lexicon
from services.gateway.table import MESSAGES
from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish
from tests import golden
from tests.examples import few
from tests.service.scripted import HI, Step, fixed, speaking, stack
from tests.splitting import answer, collected, splits, streamed, toy_lexicon
from tests.toy_format import ToyFormat

ASK = [{"role": "user", "content": "Say something."}]
TOOLS = [{"name": "weather", "input_schema": {"type": "object"}}]
MARKS = ["<think>", "</think>", "<call weather>", "</call>", "<", " ", "\n", "a", "b c", "😀", "END"]


def asking(**fields: Any) -> dict[str, Any]:
    return {"messages": ASK, "max_tokens": 100, "stream": True, "seed": 5, **fields}


@pytest.fixture(scope="module")
def lexicon(model: Model) -> Lexicon:
    return toy_lexicon(model)


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("text", "Hello 😀 world", {}),
        ("empty", "", {}),
        ("stop", "Hello END world", {"stop_sequences": ["END"]}),
        (
            "tools",
            '<think>Two of them.</think>\n\nI ask.\n<call weather>{"city": "Bern"}</call>\n<call weather>{}</call>',
            {"tools": TOOLS, "thinking": {"type": "adaptive"}},
        ),
    ],
)
async def test_transcripts(
    valkey_url: str,
    vocabulary: bytes,
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    fields: dict[str, Any],
) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())
    async with stack(valkey_url, vocabulary, speaking(model, text, 2)) as s:
        golden.check(f"messages-{name}", await s.transcript("/v1/messages", **asking(**fields)))
        golden.check(f"messages-{name}-whole", await s.transcript("/v1/messages", **asking(**fields, stream=False)))


async def test_transcript_of_a_failure(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    steps: list[Step] = [Chunk(tokens=(HI,)), Chunk(tokens=(), finish=Finish.ERROR, detail="Out of memory.")]
    async with stack(valkey_url, vocabulary, fixed(*steps)) as s:
        golden.check("messages-error", await s.transcript("/v1/messages", **asking()))


def events(stream: str) -> list[dict[str, Any]]:
    """Every event's data, after a look at its name."""
    found = []
    for frame in stream.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def joined(stream: str) -> dict[str, Any]:
    """The message that a client puts together, checked for the events' order."""
    start, *between, delta, stop = events(stream)
    assert (start["type"], delta["type"], stop["type"]) == ("message_start", "message_delta", "message_stop")
    blocks: list[dict[str, Any]] = []
    open_block = False
    for event in between:
        kind = event["type"].removeprefix("content_block_")
        assert event["index"] == len(blocks) - (kind != "start")
        assert open_block is (kind != "start")
        open_block = kind != "stop"
        if kind == "start":
            blocks.append({**event["content_block"], "json": ""})
        elif kind == "delta":
            for field, text in event["delta"].items():
                if field != "type":
                    blocks[-1]["json" if field == "partial_json" else field] += text
    assert not open_block
    assert blocks
    del delta["speculative"]  # rounds are commits
    return {"content": [_masked(block) for block in blocks], **delta}


def _masked(block: dict[str, Any]) -> dict[str, Any]:
    return {name: "toolu" if name == "id" else value for name, value in block.items()}


@settings(max_examples=few(120))
@given(data=st.data())
def test_any_split_into_commits_gives_the_same_message(lexicon: Lexicon, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(MARKS), max_size=12)))
    finish = data.draw(st.sampled_from([Finish.STOP, Finish.LENGTH]))
    call = MESSAGES.parse(json.dumps(asking(tools=TOOLS, stop_sequences=["END"], return_token_ids=True)).encode())
    one = answer(lexicon, text, finish)
    whole = joined(streamed(call, lexicon, [one]))
    assert joined(streamed(call, lexicon, data.draw(splits(one)))) == whole
    ended = [block for block in whole["content"] if block["type"] == "tool_use"]
    assert whole["delta"]["stop_reason"] != "tool_use" or ended
    assert all(block.get("text", "x").strip() for block in whole["content"]) or len(whole["content"]) == 1


@settings(max_examples=few(60))
@given(data=st.data())
def test_a_whole_message_is_what_the_stream_adds_up_to(lexicon: Lexicon, data: st.DataObject) -> None:
    calls = st.sampled_from(['<call weather>{"city": "Bern 😀"}</call>', "<call weather>{}</call>"])
    plain = st.sampled_from(["<think>Hm.</think>", "\n\n", "Hello.", " ", "漢字"])
    text = "".join(data.draw(st.lists(calls | plain, max_size=6)))
    call = MESSAGES.parse(json.dumps(asking(tools=TOOLS)).encode())
    one = answer(lexicon, text)
    body: Any = collected(call, lexicon, data.draw(splits(one)))
    told = joined(streamed(call, lexicon, [one]))
    for block in told["content"]:
        block["input"] = json.loads(block.pop("json")) if block["type"] == "tool_use" else block.pop("json")
    for block in body["content"]:
        block.setdefault("input", "")
    assert [_masked(block) for block in body["content"]] == told["content"]
    assert {name: body[name] for name in ("stop_reason", "stop_sequence")} == told["delta"]
    assert body["usage"] == told["usage"]
