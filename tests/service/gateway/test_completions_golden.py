"""Streams of completions, frame by frame."""

import json
from typing import Any

from services.gateway.table import COMPLETIONS
from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish, TokenLogprob
from tests import golden
from tests.service.scripted import Script, cut, fixed, speaking, stack
from tests.splitting import answer, streamed, toy_lexicon


async def complete(valkey_url: str, vocabulary: bytes, script: Script, **fields: Any) -> str:
    body = {"prompt": "Once", "stream": True, "seed": 5, **fields}
    async with stack(valkey_url, vocabulary, script) as s:
        return await s.transcript("/v1/completions", **body)


async def test_text_with_echo_and_usage(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    script = speaking(model, " upon a 😀 time", 2)
    fields = {"echo": True, "stream_options": {"include_usage": True}}
    golden.check("completions-echo", await complete(valkey_url, vocabulary, script, **fields))


async def test_a_whole_answer(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    golden.check("completions-whole", await complete(valkey_url, vocabulary, speaking(model, " upon"), stream=False))


async def test_logprobs(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tokens = model.vocabulary.tokenize(" up 😀")
    logprobs = tuple(TokenLogprob(-0.5, ((5, -0.25),)) for _ in tokens)
    script = fixed(Chunk(tokens=tuple(tokens), logprobs=logprobs, finish=Finish.LENGTH))
    golden.check("completions-logprobs", await complete(valkey_url, vocabulary, script, logprobs=1))


async def test_an_error_after_the_headers(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    failed = Chunk(tokens=(), finish=Finish.ERROR, detail="The target could not decode.")
    script = fixed(*cut(model.vocabulary.tokenize(" upon a"), 1, Finish.NONE), failed)
    golden.check("completions-error", await complete(valkey_url, vocabulary, script))


def test_two_prompts_of_two_choices(model: Model) -> None:
    lexicon = toy_lexicon(model)
    body = {"prompt": ["One", "Two"], "n": 2, "stream": True, "echo": True, "seed": 5}
    commits = [[answer(lexicon, text)] for text in (" a", " b", " c", " d")]
    golden.check("completions-choices", streamed(COMPLETIONS.parse(json.dumps(body).encode()), lexicon, *commits))
