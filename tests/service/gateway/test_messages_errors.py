"""What Anthropic's clients are told when something cannot be done: its types, its statuses, its words."""

import asyncio
import io
import re
from typing import Any, cast

import anthropic
import pytest

from shared.model.llama.model import Model
from shared.wire import keys
from shared.wire.messages import Chunk, Finish, Job
from tests.server import valkey_server
from tests.service.scripted import HI, MODEL, Script, Stack, Step, card, cut, fixed, speaking, stack

ASK: list[Any] = [{"role": "user", "content": "Say something."}]


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": ASK, **fields}


def starting() -> tuple[asyncio.Event, Script]:
    """A script that never ends, and what it sets when its first job is claimed."""
    claimed = asyncio.Event()

    def script(_: Job) -> list[Step]:
        claimed.set()
        return [Chunk(tokens=(HI,)), asyncio.Event()]

    return claimed, script


async def refusal(s: Stack, method: str = "POST", path: str = "/v1/messages", **request: Any) -> tuple[int, str, str]:
    """Status, type and message, after a look at what all refusals share."""
    async with s.session.request(method, s.url + path, **request) as response:
        body = await response.json()
        assert body["type"] == "error"
        assert body["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
        assert set(body["error"]) == {"type", "message"}
        if response.status in (429, 529):
            assert 1 <= int(response.headers["Retry-After"]) <= 3
        return response.status, body["error"]["type"], body["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens", "/messages"])
async def test_bad_requests(valkey_url: str, vocabulary: bytes, path: str) -> None:
    async with stack(valkey_url, vocabulary) as s:
        for body, status, kind in (
            ({**asking(), "messages": 1}, 400, "invalid_request_error"),
            (asking(model="nope", stream=True), 404, "not_found_error"),
        ):
            assert (await refusal(s, path=path, json=body))[:2] == (status, kind)
        assert (await refusal(s, path=path, data=b"{"))[:2] == (400, "invalid_request_error")


async def test_routes_that_do_not_exist(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        assert (await refusal(s, path="/v1/messages/batches"))[:2] == (404, "not_found_error")
        assert (await refusal(s, "GET"))[:2] == (405, "invalid_request_error")


async def test_bodies_that_are_too_large(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        body = io.BytesIO(b'{"messages": "' + b"x" * (33 << 20))
        assert (await refusal(s, data=body))[:2] == (413, "request_too_large")


async def test_keys_in_either_header(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hi"), api_key=["secret"]) as s:
        assert (await refusal(s, json=asking()))[:2] == (401, "authentication_error")
        accepted: list[dict[str, Any]] = [{"api_key": "secret"}, {"auth_token": "secret"}]
        for credentials in accepted:
            async with anthropic.AsyncAnthropic(base_url=s.url, max_retries=0, **credentials) as client:
                assert (await client.messages.create(**asking())).stop_reason == "end_turn"
        async with anthropic.AsyncAnthropic(base_url=s.url, max_retries=0, api_key="wrong") as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(**asking())


@pytest.mark.parametrize("stream", [False, True])
async def test_an_overflow_in_the_words_that_clients_look_for(
    valkey_url: str, vocabulary: bytes, model: Model, stream: bool
) -> None:
    long: list[Any] = [{"role": "user", "content": "word " * 600}]
    async with stack(valkey_url, vocabulary) as s, s.anthropic as client:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await client.messages.create(**asking(messages=long, stream=stream))
        counted = await client.messages.count_tokens(model=MODEL, messages=long)
    numbers = re.search(r"prompt is too long: (\d+) tokens > (\d+) maximum", caught.value.message)
    assert numbers is not None
    assert (int(numbers[1]), int(numbers[2])) == (counted.input_tokens, 511)


@pytest.mark.parametrize(
    ("option", "refused"),
    [("max_requests", (529, "overloaded_error")), ("max_requests_per_key", (429, "rate_limit_error"))],
)
async def test_a_full_server_asks_to_come_back(
    valkey_url: str, vocabulary: bytes, option: str, refused: tuple[int, str]
) -> None:
    claimed, script = starting()
    limits: dict[str, Any] = {option: 1}
    async with stack(valkey_url, vocabulary, script, **limits) as s:
        first = asyncio.ensure_future(s.session.post(f"{s.url}/v1/messages", json=asking()))
        await claimed.wait()
        assert (await refusal(s, json=asking(stream=True)))[:2] == refused
        first.cancel()


async def test_a_server_without_a_verifier_or_redis_is_overloaded(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, cards=[card(draining=True)]) as s, s.anthropic as client:
        assert (await refusal(s, json=asking()))[:2] == (529, "overloaded_error")
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.messages.create(**asking())
        assert (caught.value.status_code, caught.value.response.headers["retry-after"] in "123") == (529, True)
    with valkey_server() as own:
        async with stack(own.url, vocabulary) as s:
            own.stop()
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                assert (await refusal(s, path=path, json=asking()))[:2] == (529, "overloaded_error")


async def test_a_failed_stream_says_so_and_the_same_request_works_whole(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    """Claude Code asks again without a stream when one fails."""
    broken: list[Step] = [Chunk(tokens=(HI,)), Chunk(tokens=(), finish=Finish.ERROR, detail="Out of memory.")]
    scripts = iter([broken, cut(model.vocabulary.tokenize("Hello"), 1)])
    async with stack(valkey_url, vocabulary, lambda _: next(scripts)) as s, s.anthropic as client:
        stream = await client.messages.create(**asking(stream=True))
        with pytest.raises(anthropic.APIStatusError, match="Out of memory") as caught:
            [event async for event in stream]
        assert caught.value.body == {"type": "error", "error": {"type": "api_error", "message": "Out of memory."}}
        message = await client.messages.create(**asking())
    assert (message.content[0].to_dict()["text"], message.stop_reason) == ("Hello", "end_turn")


@pytest.mark.parametrize(
    ("finish", "status", "kind"), [(Finish.DEADLINE, 504, "timeout_error"), (Finish.CANCELLED, 499, "api_error")]
)
async def test_an_answer_that_does_not_come(
    valkey_url: str, vocabulary: bytes, finish: Finish, status: int, kind: str
) -> None:
    async with stack(valkey_url, vocabulary, fixed(Chunk(tokens=(), finish=finish))) as s:
        assert (await refusal(s, json=asking()))[:2] == (status, kind)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_its_job(valkey_url: str, vocabulary: bytes, stream: bool) -> None:
    claimed, script = starting()
    async with stack(valkey_url, vocabulary, script) as s:
        async with s.anthropic as client:
            asked = asyncio.ensure_future(client.messages.create(**asking(stream=stream)))
            await claimed.wait()
            if stream:
                await (await asked).close()
            asked.cancel()
            assert await s.terminal(s.verifier.jobs[0].request_id) is Finish.CANCELLED
        assert await cast(Any, s.clients.redis).zcard(keys.admitted(MODEL)) == 0


async def test_conversations_held_by_the_server_are_refused_as_the_client_understands(
    valkey_url: str, vocabulary: bytes
) -> None:
    async with (
        stack(valkey_url, vocabulary) as s,
        s.session.post(f"{s.url}/v1/messages", json=asking(thread={"type": "create"})) as response,
    ):
        assert response.status == 400
        details = (await response.json())["error"]["details"]
        assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


async def test_what_is_left_out_is_told_in_a_header(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "b\u00e4sh\r\n"}]
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        for stream in (False, True):
            body = asking(model="claude-haiku-4-5", tools=tools, stream=stream)
            async with s.session.post(f"{s.url}/v1/messages", json=body) as response:
                assert response.status == 200
                warning = response.headers["x-draftmesh-warning"]
            assert "'claude-haiku-4-5' is not served here" in warning
            assert "tool 'web_search' is not supported" in warning
            assert "tool 'b?sh??'" in warning


async def test_the_address_itself_answers(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, api_key=["secret"]) as s:
        for method in ("HEAD", "GET"):
            async with s.session.request(method, f"{s.url}/") as response:
                assert response.status == 200
