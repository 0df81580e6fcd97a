"""Whatever a client waits for in silence, it is told in its own dialect that somebody is there."""

import asyncio
from typing import Any

import pytest

from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish
from tests.service.scripted import MESSAGES, MODEL, cut, stack

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "look", "parameters": SCHEMA}
DIALECTS: dict[str, tuple[str, dict[str, Any], bytes]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": MESSAGES, "tools": [{"type": "function", "function": FUNCTION}]},
        b": ping\n\n",
    ),
    "completions": ("/v1/completions", {"prompt": "Once", "stop": "<tool_call> is a mark"}, b": ping\n\n"),
    "messages": (
        "/v1/messages",
        {"messages": MESSAGES, "max_tokens": 50, "tools": [{"name": "look", "input_schema": SCHEMA}]},
        b'event: ping\ndata: {"type":"ping"}\n\n',
    ),
    "responses": (
        "/v1/responses",
        {"input": "Hi", "tools": [{"type": "function", **FUNCTION}]},
        b"event: response.in_progress\n",
    ),
    "ollama": (
        "/api/chat",
        {"messages": MESSAGES, "tools": [{"type": "function", "function": FUNCTION}]},
        b'"content":""},"done":false}\n',
    ),
}


@pytest.mark.parametrize("phase", ["waiting", "withheld"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_silence_is_filled_in_every_dialect(
    valkey_url: str, vocabulary: bytes, model: Model, dialect: str, phase: str
) -> None:
    path, body, ping = DIALECTS[dialect]
    gate = asyncio.Event()
    # Nobody knows yet whether this becomes a call (or a stop string): nothing of it may be shown.
    held = Chunk(tokens=tuple(model.vocabulary.tokenize("<tool_call>")))
    rest = cut(model.vocabulary.tokenize(" Hi"), 1, Finish.STOP)
    script = [gate, *rest] if phase == "waiting" else [held, gate, *rest]
    asked = {"model": MODEL, "stream": True, **body}
    async with (
        stack(valkey_url, vocabulary, lambda _: script, heartbeat_s=0.02) as s,
        s.session.post(s.url + path, json=asked) as response,
    ):
        assert response.status == 200
        before = b""
        while before.count(ping) < 4:
            before += await response.content.readany()
        assert b"<tool_call>" not in before
        gate.set()
        assert b"Hi" in await response.content.read()
