"""What OpenAI's clients put together from a stream does not depend on how its tokens were split into commits."""

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.models.served_model import Lexicon
from services.gateway.table import CHAT, COMPLETIONS
from shared.model.llama.model import Model
from shared.wire.messages import Finish
from tests.examples import few
from tests.golden import normalised
from tests.splitting import answer, collected, splits, streamed, toy_lexicon

_TEXT = st.text("ab <>{}\n😀漢", max_size=12)
_ARGUMENTS = st.dictionaries(st.text("k😀", max_size=2), st.text('v"\\漢', max_size=6), max_size=2).map(json.dumps)
_PIECE = st.one_of(
    _TEXT,
    _TEXT.map("<think>{}</think>".format),
    st.tuples(st.sampled_from(["f", "g"]), _ARGUMENTS).map(lambda call: f"<call {call[0]}>{call[1]}</call>"),
    st.sampled_from(["<call f>{", "<think>a", "<cal", "</call>"]),
)
_ANSWER = st.lists(_PIECE, max_size=4).map("".join)
_SETTINGS = settings(max_examples=few(80), derandomize=True)


@pytest.fixture(scope="module")
def lexicon(model: Model) -> Lexicon:
    return toy_lexicon(model)


def data(stream: str) -> list[dict[str, Any]]:
    """The frames of a stream that ends as it should, ids numbered and times masked."""
    *frames, done = normalised(stream).strip().split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(one.removeprefix("data: ").replace("<time>", "0")) for one in frames]


def chat_message(stream: str) -> dict[str, Any]:
    """The message that a client puts together, and what came with its end."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "logprobs": [], "token_ids": []}
    calls: defaultdict[int, dict[str, str]] = defaultdict(lambda: {"arguments": ""})
    for chunk in data(stream):
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                message[name] += delta.get(name, "")
            for call in delta.get("tool_calls", ()):
                kept = calls[call["index"]]
                if "id" in call:
                    assert not kept["arguments"]
                    assert call["function"]["arguments"] == ""
                    kept |= {"id": call["id"], "name": call["function"]["name"]}
                else:
                    assert "name" not in call["function"]
                    kept["arguments"] += call["function"]["arguments"]
            message["logprobs"] += (choice["logprobs"] or {"content": []})["content"]
            message["token_ids"] += choice.get("token_ids", [])
            message["finish_reason"] = choice["finish_reason"]
        message["usage"] = chunk.get("usage")
    return message | {"calls": [calls[index] for index in sorted(calls)]}


QUESTION = {"messages": [{"role": "user", "content": "hi"}], "seed": 1, "logprobs": True, "return_token_ids": True}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@_SETTINGS
@given(drawn=st.data())
def test_a_chat_stream_says_the_same_in_any_commits(lexicon: Lexicon, drawn: st.DataObject) -> None:
    stops = drawn.draw(st.lists(st.sampled_from(["b", "a b", "<ca", "😀"]), max_size=1, unique=True))
    call = CHAT.parse(json.dumps({**QUESTION, **USAGE, "stop": stops}).encode())
    finish = drawn.draw(st.sampled_from([Finish.STOP, Finish.LENGTH]))
    text = drawn.draw(_ANSWER)
    whole = answer(lexicon, text, finish, logprobs=True)
    said = chat_message(streamed(call, lexicon, drawn.draw(splits(whole))))
    assert said == chat_message(streamed(call, lexicon, [whole]))
    _agree(said, collected(call, lexicon, drawn.draw(splits(whole))))
    if said["calls"] and text.endswith("</call>") and not stops and "<think>a" not in text:  # all of them are complete
        assert (said["finish_reason"] == "tool_calls") == (finish is Finish.STOP)


def _agree(said: dict[str, Any], body: dict[str, Any]) -> None:
    """The whole answer is the stream put together, and only calls are a reason to call."""
    choice = json.loads(normalised(json.dumps(body)).replace("<time>", "0"))["choices"][0]
    message = choice["message"]
    assert (message["content"] or "") == said["content"]
    assert message.get("reasoning_content", "") == said["reasoning_content"]
    assert choice["finish_reason"] == said["finish_reason"]
    assert choice["logprobs"]["content"] == said["logprobs"]
    assert choice["token_ids"] == said["token_ids"]
    assert body["usage"] == said["usage"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    told = [{"name": call["name"], "arguments": call["arguments"]} for call in said["calls"]]
    assert calls == told
    assert calls or choice["finish_reason"] != "tool_calls"


def completion(stream: str) -> dict[str, Any]:
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    said: dict[str, Any] = {"text": "", "logprobs": {name: [] for name in names}}
    for chunk in data(stream):
        for choice in chunk["choices"]:
            said["text"] += choice["text"]
            for name, values in (choice["logprobs"] or {}).items():
                said["logprobs"][name] += values
            said["finish_reason"] = choice["finish_reason"]
        said["usage"] = chunk.get("usage")
    return said


@_SETTINGS
@given(drawn=st.data())
def test_a_completion_stream_says_the_same_in_any_commits(lexicon: Lexicon, drawn: st.DataObject) -> None:
    stops = drawn.draw(st.lists(st.sampled_from(["b", "a b", "😀"]), max_size=1, unique=True))
    call = COMPLETIONS.parse(json.dumps({"prompt": "p", "seed": 1, **USAGE, "stop": stops, "logprobs": 1}).encode())
    whole = answer(lexicon, drawn.draw(_ANSWER), logprobs=True)
    said = completion(streamed(call, lexicon, drawn.draw(splits(whole))))
    assert said == completion(streamed(call, lexicon, [whole]))
    body: Any = collected(call, lexicon, drawn.draw(splits(whole)))
    [choice] = body["choices"]
    assert (choice["text"], choice["finish_reason"]) == (said["text"], said["finish_reason"])
    assert choice["logprobs"] == said["logprobs"]
    assert body["usage"] == said["usage"]
