"""Requests in the forms that clients send them in: compressed, with untidy paths, and asking for no token."""

import gzip
import json
import sys
from typing import Any

import pytest

from shared.model.llama.model import Model
from tests.service.scripted import MESSAGES, MODEL, Stack, speaking, stack

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Say"},
    "/v1/responses": {"input": "Say something."},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9},
    "/api/chat": {"messages": MESSAGES, "stream": False},
}


async def sent(s: Stack, path: str, body: bytes, coding: str = "") -> tuple[int, Any, str]:
    headers = {"Content-Type": "application/json"} | ({"Content-Encoding": coding} if coding else {})
    async with s.session.post(s.url + path, data=body, headers=headers) as response:
        return response.status, await response.json(), response.headers["x-request-id"]


async def test_compressed_bodies_in_every_dialect(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hello")) as s:
        for path, fields in BODIES.items():
            body = json.dumps({"model": MODEL, **fields}).encode()
            for coding, packed in (("zstd", zstd.compress(body)), ("x-gzip", gzip.compress(body))):
                status, answer, _ = await sent(s, path, packed, coding)
                assert status == 200
                assert "Hello" in json.dumps(answer)
            status, answer, request_id = await sent(s, path, body, "br")
            assert (status, request_id[:4]) == (415, "req_")
            said = answer["error"] if path.startswith("/api") else answer["error"]["message"]
            assert said.endswith("one of gzip, deflate, zstd.")
            assert (await sent(s, path, body, "gzip"))[0] == 400


async def test_a_bomb_is_413(valkey_url: str, vocabulary: bytes) -> None:
    bomb = zstd.compress(b'{"messages": "' + bytes(40 << 20))
    async with stack(valkey_url, vocabulary) as s:
        status, answer, _ = await sent(s, "/v1/chat/completions", bomb, "zstd")
        assert (status, answer["error"]["code"]) == (413, "request_too_large")


async def test_untidy_paths_find_their_routes_and_their_shapes(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, api_key=["k"]) as s:
        for path in ("//v1/models", "/v1/models/", "/v1//models", "//health/"):
            async with s.session.get(s.url + path, headers={"x-api-key": "k"}) as response:
                assert response.status == 200
        async with s.session.get(f"{s.url}//health") as response:  # an open route stays open
            assert response.status == 200
        async with s.session.get(f"{s.url}//v1/models/") as response:
            assert response.status == 401
        async with s.session.post(f"{s.url}//v1/messages/", json={}, headers={"x-api-key": "k"}) as response:
            assert (response.status, (await response.json())["type"]) == (400, "error")


LIMITS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "n_predict",
    "/v1/responses": "max_output_tokens",
    "/v1/messages": "max_tokens",
}


@pytest.mark.parametrize("path", LIMITS)
async def test_no_token_is_an_answer_that_the_limit_ended(
    valkey_url: str, vocabulary: bytes, model: Model, path: str
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hello")) as s:
        body = {"model": MODEL, **BODIES[path], LIMITS[path]: 0, "seed": 1}
        status, answer, _ = await sent(s, path, json.dumps(body).encode())
        assert status == 200
        streamed = await s.transcript(path, **body, stream=True)
        # The verifier reads the prompt into its cache; the one token that a job must have is dropped.
        assert [job.max_tokens for job in s.verifier.jobs] == [1, 1]
    for said in (json.dumps(answer), streamed):
        assert "Hello" not in said
    usage = answer["usage"]
    assert (usage.get("completion_tokens", 0), usage.get("output_tokens", 0)) == (0, 0)
    match path:
        case "/v1/responses":
            [message] = answer["output"]
            assert (answer["status"], message["content"][0]["text"]) == ("incomplete", "")
            assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
        case "/v1/messages":
            assert (answer["stop_reason"], answer["content"]) == ("max_tokens", [{"type": "text", "text": ""}])
            assert '"stop_reason":"max_tokens"' in streamed
        case _:
            assert [choice["finish_reason"] for choice in answer["choices"]] == ["length"]
            assert '"finish_reason":"length"' in streamed


async def test_an_empty_format_of_ollama_is_any_json_and_none_is_text(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "1")) as s:
        forms: list[Any] = [{}, "", "json"]
        for form in forms:
            body = {"model": MODEL, "prompt": "Say", "raw": True, "stream": False, "format": form}
            assert (await sent(s, "/api/generate", json.dumps(body).encode()))[0] == 200
        anything, nothing, some_object = (job.grammar for job in s.verifier.jobs)
    assert anything
    assert not nothing
    assert '"type": "object"' in some_object
    assert '"type": "object"' not in anything
