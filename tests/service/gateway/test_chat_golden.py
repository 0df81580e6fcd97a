"""Chat streams, frame by frame."""

import json
from typing import Any

import pytest

from services.gateway.table import CHAT
from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, TokenLogprob
from tests import golden
from tests.service.scripted import EOG, MESSAGES, Script, cut, fixed, speaking, stack
from tests.splitting import answer, streamed, toy_lexicon
from tests.toy_format import ToyFormat

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())


async def chat(valkey_url: str, vocabulary: bytes, script: Script, **fields: Any) -> str:
    body = {"messages": MESSAGES, "stream": True, "seed": 5, **fields}
    async with stack(valkey_url, vocabulary, script) as s:
        return await s.transcript("/v1/chat/completions", **body)


async def test_text(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    golden.check("chat-text", await chat(valkey_url, vocabulary, speaking(model, "Hello 😀 world", 2)))


async def test_a_whole_answer(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    text = "<think>Hm.</think>Let me see.<call weather>{}</call>"
    golden.check("chat-whole", await chat(valkey_url, vocabulary, speaking(model, text), stream=False, tools=TOOLS))


async def test_two_calls_after_text(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    text = 'Looking.<call weather>{"city": "Wien"}</call><call weather>{"city": "Graz"}</call>'
    golden.check("chat-tools", await chat(valkey_url, vocabulary, speaking(model, text, 2), tools=TOOLS))


async def test_reasoning_and_usage(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking(model, "<think>I wonder.</think>Yes.", 2)
    options = {"include_usage": True, "continuous_usage_stats": True}
    golden.check("chat-reasoning-usage", await chat(valkey_url, vocabulary, script, stream_options=options))


async def test_an_error_after_the_headers(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    failed = Chunk(tokens=(), finish=Finish.ERROR, detail="The target could not decode.")
    script = fixed(*cut(model.vocabulary.tokenize("Hello there"), 1, Finish.NONE), failed)
    golden.check("chat-error", await chat(valkey_url, vocabulary, script))


async def test_logprobs(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tokens = (*model.vocabulary.tokenize("é!"), EOG)
    logprobs = tuple(TokenLogprob(-0.5, ((token, -0.5), (5, float("-inf")))) for token in tokens)
    script = fixed(Chunk(tokens=tokens, logprobs=logprobs, finish=Finish.STOP))
    golden.check("chat-logprobs", await chat(valkey_url, vocabulary, script, logprobs=True, top_logprobs=2))


def test_two_choices(model: Model) -> None:
    lexicon = toy_lexicon(model)
    call = CHAT.parse(json.dumps({"messages": MESSAGES, "stream": True, "n": 2, "seed": 5}).encode())
    hello, hi = answer(lexicon, "Hello"), answer(lexicon, "Hi")
    golden.check("chat-choices", streamed(call, lexicon, [hello], [Chunk(tokens=()), hi]))
