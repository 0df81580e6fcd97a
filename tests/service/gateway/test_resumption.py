"""Streams of what runs for its client alone are not resumable, and say so: no ids, and a clear no to whoever tries."""

from typing import Any

import pytest

from shared.model.llama.model import Model
from tests.service.scripted import MESSAGES, MODEL, speaking, stack

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Once"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 50},
    "/v1/responses": {"input": "Hi"},
    "/api/chat": {"messages": MESSAGES},
    "/api/generate": {"prompt": "Once"},
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_has_no_ids_and_is_not_taken_up_again(
    valkey_url: str, vocabulary: bytes, model: Model, path: str
) -> None:
    body = {"model": MODEL, "stream": True, **BODIES[path]}
    async with stack(valkey_url, vocabulary, speaking(model, "Hello.")) as s:
        lines = (await s.transcript(path, **body)).splitlines()
        assert not [line for line in lines if line.startswith("id:")]
        headers = {"Last-Event-ID": "3"}
        async with s.session.post(s.url + path, json=body, headers=headers) as response:
            assert response.status == 400
            assert "A stream cannot be resumed" in await response.text()
        assert len(s.verifier.jobs) == 1
