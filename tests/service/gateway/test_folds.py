"""In every dialect a whole answer is what the frames of its stream add up to, or both tell of the same failure."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.dialects.ollama.exchange import chat_exchange, generate_exchange
from services.gateway.dialects.responses.exchange import ResponsesExchange
from services.gateway.http.dialect import Exchange
from services.gateway.models.served_model import Lexicon
from services.gateway.table import CHAT, COMPLETIONS, MESSAGES
from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish
from tests.examples import few
from tests.golden import normalised
from tests.service.scripted import HI, MODEL, fixed, stack
from tests.splitting import answer, collected, folded, splits, toy_lexicon

HELLO: list[Any] = [{"role": "user", "content": "hi"}]
TOKENS = {"return_token_ids": True, "speculative_trace": True}
PIECES = st.sampled_from(
    [
        *("Hello ", "é 😀", "\n\n", " ", "END", "a <"),
        *("<think>Hm 漢</think>", "<call f>{}</call>", '<call g>{"x": "漢 END"}</call>'),
    ]
)
TEXT = st.builds(
    lambda pieces, rest: "".join([*pieces, rest]),
    st.lists(PIECES, min_size=1, max_size=6),
    st.sampled_from(["", "<think>", '<call f>{"a']),
)


def objects(stream: str) -> list[Any]:
    """The data of server-sent events, parsed; the end mark is an object without members."""
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")]
    return [{} if line == "[DONE]" else json.loads(line) for line in lines]


def contents(stream: str) -> list[Any]:
    """What the lines of an Ollama stream say, in either form."""
    found = []
    for line in map(json.loads, stream.splitlines()):
        said = line.get("message", line)
        counts = {name: value for name, value in line.items() if name not in ("model", "created_at", "message")}
        found.append(
            {
                "text": said.get("content", said.get("response")),
                "thinking": said.get("thinking", ""),
                "calls": said.get("tool_calls", []),
                **({"logprobs": line["logprobs"]} if "logprobs" in line else {}),
                "counts": {name: counts[name] for name in list(counts)[list(counts).index("done") + 1 :]},
            }
        )
    return found


Case = tuple[Callable[[bytes], Exchange], dict[str, Any], Callable[[str], Sequence[Any]]]
DIALECTS: dict[str, Case] = {
    "chat": (
        CHAT.parse,
        {"messages": HELLO, "logprobs": True, "n": 2, "stop": ["END"], "stream_options": {"include_usage": True}}
        | TOKENS,
        objects,
    ),
    "completions": (
        COMPLETIONS.parse,
        {"prompt": ["One", "Two"], "logprobs": 2, "stop": ["END"], "stream_options": {"continuous_usage_stats": True}},
        objects,
    ),
    "completions that echo": (COMPLETIONS.parse, {"prompt": [1, 2], "echo": True, "n": 2, **TOKENS}, objects),
    "messages": (
        MESSAGES.parse,
        {"messages": HELLO, "max_tokens": 99, "stop_sequences": ["END"], "thinking": {"type": "adaptive"}, **TOKENS},
        objects,
    ),
    "responses": (
        ResponsesExchange,
        {"input": "hi", "stop": ["END"], "include": ["message.output_text.logprobs"], **TOKENS},
        objects,
    ),
    "ollama's chat": (chat_exchange, {"messages": HELLO, "logprobs": True, "options": {"stop": ["END"]}}, contents),
    "ollama's generate": (generate_exchange, {"prompt": "hi", "logprobs": True}, contents),
}


DIALECTS_ONE = {
    "chat": CHAT.parse(json.dumps({"messages": HELLO, "stop": ["END"]}).encode()),
    "messages": MESSAGES.parse(json.dumps({"messages": HELLO, "max_tokens": 99, "stop_sequences": ["END"]}).encode()),
}


@pytest.fixture(scope="module")
def lexicon(model: Model) -> Lexicon:
    return toy_lexicon(model)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=few(160))
@given(drawn=st.data())
def test_a_whole_answer_is_the_fold_of_the_frames(lexicon: Lexicon, drawn: st.DataObject, dialect: str) -> None:
    parse, body, read = DIALECTS[dialect]
    call = parse(json.dumps({"seed": 1, "stream": True, **body}).encode())
    choices = len(call.generation().prompts) * call.generation().choices
    finish = st.sampled_from([Finish.STOP, Finish.LENGTH])
    commits = [
        drawn.draw(splits(answer(lexicon, drawn.draw(TEXT), drawn.draw(finish), logprobs=True))) for _ in range(choices)
    ]
    whole = normalised(json.dumps(collected(call, lexicon, *commits)))
    assert normalised(json.dumps(folded(call, lexicon, read, *commits))) == whole


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.STOP])
@pytest.mark.parametrize("text", ['<call f>{"a": 1, "b": "x END', '<call f>{}</call><call g>{"a": 1, "b": "x END'])
def test_a_call_that_was_cut_off_is_there_as_far_as_it_came_and_not_to_be_made(
    lexicon: Lexicon, text: str, finish: Finish
) -> None:
    """Whether a stop string or the limit cut it; clients see the same whole and in a stream."""
    cut = text if finish is Finish.STOP else text.removesuffix("END")
    commits = [answer(lexicon, cut, finish)]
    reason = "stop" if finish is Finish.STOP else "length"
    chat: Any = collected(DIALECTS_ONE["chat"], lexicon, commits)
    [choice] = chat["choices"]
    assert choice["finish_reason"] == reason
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][-1]["function"]["arguments"] == '{"a": 1, "b": "x '
    assert len(choice["message"]["tool_calls"]) == text.count("<call")
    message: Any = collected(DIALECTS_ONE["messages"], lexicon, commits)
    assert message["stop_reason"] == ("stop_sequence" if finish is Finish.STOP else "max_tokens")
    assert message["content"][-1]["input"] == {"a": 1}
    assert {block["type"] for block in message["content"]} == {"tool_use"}


def test_a_whole_answer_without_a_token_has_lists_without_entries(lexicon: Lexicon) -> None:
    nothing = [Chunk(tokens=(), finish=Finish.STOP)]
    asked = {"seed": 1, "return_token_ids": True}
    body: Any = collected(
        CHAT.parse(json.dumps({"messages": HELLO, "logprobs": True, **asked}).encode()), lexicon, nothing
    )
    [choice] = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert (choice["logprobs"], choice["token_ids"]) == ({"content": [], "refusal": None}, [])
    body = collected(COMPLETIONS.parse(json.dumps({"prompt": "a", "logprobs": 0, **asked}).encode()), lexicon, nothing)
    [choice] = body["choices"]
    assert (choice["text"], choice["token_ids"]) == ("", [])
    assert choice["logprobs"] == {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


ROUTES: dict[str, tuple[str, dict[str, Any], Callable[[Any], str]]] = {
    "chat": ("/v1/chat/completions", {"messages": HELLO}, lambda told: told["error"]["message"]),
    "completions": ("/v1/completions", {"prompt": "hi"}, lambda told: told["error"]["message"]),
    "messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 9}, lambda told: told["error"]["message"]),
    "responses": ("/v1/responses", {"input": "hi"}, lambda told: told["error"]["message"]),
    "ollama": ("/api/chat", {"messages": HELLO}, lambda told: told["error"]),
}


@pytest.mark.parametrize("dialect", ROUTES)
async def test_a_failure_has_one_message_in_both_forms(valkey_url: str, vocabulary: bytes, dialect: str) -> None:
    path, body, message = ROUTES[dialect]
    broken = fixed(Chunk(tokens=(HI,)), Chunk(tokens=(), finish=Finish.ERROR, detail="The target could not decode."))
    async with stack(valkey_url, vocabulary, broken) as s:
        stream = await s.transcript(path, model=MODEL, stream=True, **body)
        async with s.session.post(s.url + path, json={"model": MODEL, "stream": False, **body}) as response:
            assert response.status == 500
            assert message(await response.json()) == "The target could not decode."
    told = [line for line in stream.replace("data: [DONE]", "").splitlines() if "{" in line][-1]
    last = json.loads(told.removeprefix("data: "))
    assert message(last.get("response", last)) == "The target could not decode."
