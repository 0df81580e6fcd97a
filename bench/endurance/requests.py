"""Requests of many kinds, drawn by a seed: all dialects, streams, tools, schemas, wrong ones, clients that leave."""

import random
from dataclasses import dataclass
from typing import Any, Final

TOPICS: Final = ("rivers", "bread", "bridges", "sleep", "tides", "chess", "copper", "maps")
TOOL: Final = {
    "name": "lookup",
    "description": "Look a word up.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}
SCHEMA: Final = {
    "type": "object",
    "properties": {"title": {"type": "string", "maxLength": 20}, "good": {"type": "boolean"}},
    "required": ["title", "good"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Request:
    """`wrong` ones get a 4xx; the client of a `left` one goes away after its first bytes."""

    kind: str
    path: str
    body: dict[str, Any]
    wrong: bool = False
    left: bool = False


def _text(rng: random.Random) -> str:
    """A prompt that mostly shares its beginning with others, as conversations do."""
    words = " ".join(rng.choice(TOPICS) for _ in range(rng.choice((3, 3, 30, 120))))
    return f"Tell me about {rng.choice(TOPICS)}. Words to use: {words}."


def _messages(rng: random.Random) -> list[dict[str, Any]]:
    turns = [{"role": "user", "content": _text(rng)}]
    for _ in range(rng.choice((0, 0, 1, 3))):
        turns += [{"role": "assistant", "content": "Go on."}, {"role": "user", "content": _text(rng)}]
    return turns


def _law(rng: random.Random) -> dict[str, Any]:
    cold: dict[str, Any] = {"temperature": 0}
    return rng.choice((cold, {"temperature": 1.0, "seed": rng.randrange(1000)}, {"temperature": 0.7, "top_p": 0.9}))


def draw(number: int) -> Request:
    """The request with this number; the same at each call."""
    rng = random.Random(number)
    tokens = rng.choice((8, 16, 48))
    turns, law = _messages(rng), _law(rng)
    stream = {"stream": rng.random() < 0.6}
    chat = {"messages": turns, "max_tokens": tokens, **law, **stream}
    tool = {"type": "function", "function": TOOL}
    schema = {"type": "json_schema", "json_schema": {"name": "card", "schema": SCHEMA}}
    ollama = {"model": "default", "options": {"num_predict": tokens}, **stream}
    return rng.choice(
        (
            Request("chat", "/v1/chat/completions", chat),
            Request("chat", "/v1/chat/completions", chat, left=True),
            Request("choices", "/v1/chat/completions", chat | {"n": 2, "logprobs": True, "top_logprobs": 3}),
            Request("tools", "/v1/chat/completions", chat | {"tools": [tool], "tool_choice": "required"}),
            Request("schema", "/v1/chat/completions", chat | {"response_format": schema}),
            Request("wrong", "/v1/chat/completions", chat | {"temperature": "warm"}, wrong=True),
            Request("text", "/v1/completions", {"prompt": _text(rng), "max_tokens": tokens, **law, **stream}),
            Request("messages", "/v1/messages", chat | {"model": "default"}),
            Request("responses", "/v1/responses", {"input": _text(rng), "max_output_tokens": tokens, **law, **stream}),
            Request("ollama", "/api/chat", ollama | {"messages": turns}),
        )
    )
