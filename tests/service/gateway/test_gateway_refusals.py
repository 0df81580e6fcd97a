"""What the gateway refuses, and what it says of itself, as OpenAI's clients and probes see it."""

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI

from services.gateway.service import GatewaySettings, serve
from shared.errors import StartError
from shared.model.llama.model import Model
from shared.process import api_keys
from shared.settings.gateway_options import GatewayOptions
from shared.wire import keys
from shared.wire.messages import Chunk, Finish, Job, VerifierCard
from tests.server import valkey_server
from tests.service.scripted import MESSAGES, MODEL, Stack, Step, card, fixed, speaking, stack


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "gpt-9"}, 404, "model_not_found"),
        ({"temperature": -1}, 400, None),
        ({"tools": [{"type": "function"}]}, 400, "missing_required_parameter"),
        ({"functions": [{"name": "f"}]}, 400, "unsupported_parameter"),
        ({"logit_bias": {"49152": 1}}, 400, None),
        ({"messages": [{"role": "user", "content": "word " * 600}]}, 400, "context_length_exceeded"),
    ],
)
async def test_refusals_have_openai_s_shape_even_for_streams(
    valkey_url: str, vocabulary: bytes, fields: dict[str, Any], status: int, code: str | None
) -> None:
    async with stack(valkey_url, vocabulary) as s:
        got, body = await s.post(stream=True, **fields)
    assert (got, body["error"]["code"]) == (status, code)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == "invalid_request_error"


async def test_a_huge_body_is_413(valkey_url: str, vocabulary: bytes) -> None:
    body = io.BytesIO(b'{"messages": "' + b"x" * (33 << 20))
    async with stack(valkey_url, vocabulary) as s:
        response = await s.session.post(f"{s.url}/v1/chat/completions", data=body)
        assert (response.status, (await response.json())["error"]["code"]) == (413, "request_too_large")


async def test_keys_are_asked_for_where_they_are_set(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, api_key=["secret"]) as s:
        async with s.openai as client:
            assert [model.id async for model in client.models.list()] == [MODEL]
        async with AsyncOpenAI(base_url=f"{s.url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.models.list()
            assert caught.value.code == "invalid_api_key"
        for headers, status in (({"x-api-key": "secret"}, 200), ({"x-api-key": ""}, 401), ({}, 401)):
            async with s.session.get(f"{s.url}/v1/models", headers=headers) as response:
                assert response.status == status
        assert (await s.post())[0] == 401
        async with s.session.get(f"{s.url}/health") as response:
            assert response.status == 200


async def test_models_are_listed_and_unknown_ones_named(valkey_url: str, vocabulary: bytes) -> None:
    cards = [card(), card(id="verifier-2", n_ctx=256), card(id="verifier-3", model="other/big")]
    async with stack(valkey_url, vocabulary, cards=cards) as s, s.openai as client:
        listed = [(entry.id, cast(Any, entry).max_model_len) async for entry in client.models.list()]
        assert listed == [("other/big", 512), (MODEL, 256)]
        async with s.session.get(f"{s.url}/v1/models/other/big") as response:
            assert (await response.json())["id"] == "other/big"
        with pytest.raises(openai.NotFoundError) as caught:
            await client.models.retrieve("nope")
        assert caught.value.code == "model_not_found"
        assert "other/big, smol" in caught.value.message
        status, body = await s.post()  # which of the two?
        assert (status, body["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("limits", "status", "code"),
    [
        ({"max_requests": 1}, 503, "queue_full"),
        ({"max_requests_per_key": 1}, 429, "rate_limit_exceeded"),
        ({"max_live_tokens": 600}, 503, "queue_full"),
    ],
)
async def test_above_a_limit_it_asks_to_come_back_and_leaves_nothing_behind(
    valkey_url: str, vocabulary: bytes, limits: dict[str, Any], status: int, code: str
) -> None:
    async with stack(valkey_url, vocabulary, fixed(asyncio.Event()), **limits) as s:
        body = {"messages": MESSAGES, "n": 2, "max_tokens": 400}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            assert response.status == status
            assert 1 <= int(response.headers["Retry-After"]) <= 3
            assert (await response.json())["error"]["code"] == code
        assert await cast(Any, s.clients.redis).zcard(keys.admitted(MODEL)) == 0


async def test_a_key_that_queues_much_leaves_room_and_its_turn_to_another(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    going, begun = asyncio.Event(), asyncio.Event()

    def script(_: Job) -> list[Step]:
        begun.set()
        return [going, *speaking(model, "Hi")(_)]

    async def ask(s: Stack, key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        body = {"messages": MESSAGES, "user": key, "max_tokens": 5 if key == "modest" else 6}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body, headers=headers) as response:
            return response.status

    async with stack(valkey_url, vocabulary, script, max_requests=16) as s:
        greedy = [asyncio.create_task(ask(s, "greedy")) for _ in range(16)]
        for refused in islice(asyncio.as_completed(greedy), 2):
            await refused
        await begun.wait()
        modest = asyncio.create_task(ask(s, "modest"))
        redis = cast(Any, s.clients.redis)
        while await redis.zcard(keys.admitted(MODEL)) < 15:  # noqa: ASYNC110 - another process fills it
            await asyncio.sleep(0)
        going.set()
        assert await modest == 200
        assert sorted(await asyncio.gather(*greedy)) == [200] * 14 + [429] * 2
        assert 5 in [job.max_tokens for job in s.verifier.jobs[:3]]


@pytest.mark.parametrize("cards", [(), (card(draining=True),)])
async def test_without_a_verifier_it_is_503_and_not_ready(
    valkey_url: str, vocabulary: bytes, cards: Sequence[VerifierCard]
) -> None:
    async with stack(valkey_url, vocabulary, cards=cards) as s:
        status, body = await s.post()
        assert (status, body["error"]["type"]) == (503, "server_error")
        async with s.session.get(f"{s.url}/ready") as response:
            assert response.status == 503
            assert "verifier" in (await response.json())["missing"][0]


async def test_without_redis_it_is_503_and_alive(vocabulary: bytes) -> None:
    with valkey_server() as own:
        async with stack(own.url, vocabulary) as s:
            own.stop()
            async with s.session.post(f"{s.url}/v1/chat/completions", json={"messages": MESSAGES}) as response:
                assert response.status == 503
                assert "Retry-After" in response.headers
            for path, status in (("/ready", 503), ("/health", 200), ("/metrics", 200)):
                async with s.session.get(s.url + path) as response:
                    assert response.status == status
                    text = await response.text()
            assert "draftmesh_redis_up 0.0" in text
            assert "draftmesh_num_requests_waiting{" not in text  # nobody knows


async def test_unknown_routes_and_methods(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        for method, path, code, sentence in (
            ("GET", "/nope", "not_found", "There is no '/nope' here."),
            ("POST", "//v1/v1/models/", "not_found", "There is no '//v1/v1/models/' here."),
            ("GET", "/v1/completions", "method_not_allowed", "'/v1/completions' takes POST, not GET."),
            ("GET", "//v1/completions/", "method_not_allowed", "'//v1/completions/' takes POST, not GET."),
        ):
            async with s.session.request(method, s.url + path) as response:
                error = (await response.json())["error"]
                assert (error["code"], error["message"]) == (code, sentence)
                assert response.headers["x-request-id"].startswith("req_")


async def test_browsers_may_ask_from_anywhere(valkey_url: str, vocabulary: bytes) -> None:
    asked = {
        "Origin": "http://example.org",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-stainless-os, anthropic-version, x-evil",
    }
    async with stack(valkey_url, vocabulary, api_key=["secret"]) as s:
        response = await s.session.options(f"{s.url}/v1/chat/completions", headers=asked)
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        allowed = response.headers["Access-Control-Allow-Headers"].split(", ")
    assert {"authorization", "x-api-key", "content-type", "x-stainless-os", "anthropic-version"} <= set(allowed)
    assert "x-evil" not in allowed


async def test_a_busy_port_names_the_option(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        port = int(s.url.rpartition(":")[2])
        second = GatewaySettings(
            GatewayOptions(redis=valkey_url, host="127.0.0.1", port=port, max_requests=1, request_timeout=1)
        )
        with pytest.raises(StartError, match=f"--port {port}"):
            await serve(second, asyncio.Event())


async def test_metrics_show_requests_and_the_fleet(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    cards = [card(), card(id="verifier-2", exactness="law")]
    async with stack(valkey_url, vocabulary, speaking(model, "Hi"), cards=cards) as s:
        await s.post()
        await s.post(temperature=-1)
        async with s.session.get(f"{s.url}/metrics") as response:
            text = await response.text()
        async with s.session.get(f"{s.url}/ready") as response:
            assert response.status == 200
    for line in (
        'draftmesh_requests_total{model="smol",outcome="stop"} 1.0',
        'draftmesh_requests_total{model="",outcome="refused"} 1.0',
        'draftmesh_generation_tokens_total{model="smol"} 2.0',
        'draftmesh_time_to_first_token_seconds_count{model="smol"} 1.0',
        'draftmesh_inter_token_latency_seconds_count{model="smol"} 1.0',
        'draftmesh_spec_decode_num_draft_tokens_total{model="smol"} 20.0',
        'draftmesh_spec_decode_num_accepted_tokens_total{model="smol"} 12.0',
        'draftmesh_spec_decode_num_drafts_total{model="smol"} 8.0',
        'draftmesh_spec_decode_num_accepted_tokens_per_pos_total{model="smol",position="1"} 4.0',
        'draftmesh_prefix_cache_queries_total{model="smol"} 60.0',
        'draftmesh_prefix_cache_hits_total{model="smol"} 24.0',
        'draftmesh_exactness_info{level="law",model="smol"} 1.0',
        "draftmesh_redis_up 1.0",
        'draftmesh_num_requests_waiting{model="smol"} 0.0',
        'draftmesh_oldest_waiting_seconds{model="smol"} 0.0',
        "draftmesh_redis_max_memory_bytes 0.0",
    ):
        assert line in text


@pytest.mark.parametrize("own", ["a", "trace-7_B" * 7, "0" * 64])
async def test_a_client_s_own_request_id_comes_back(valkey_url: str, vocabulary: bytes, model: Model, own: str) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hi")) as s:
        ids = set()
        for _ in range(2):
            body = {"messages": MESSAGES}
            headers = {"x-request-id": own}
            async with s.session.post(f"{s.url}/v1/chat/completions", json=body, headers=headers) as response:
                assert response.headers["x-request-id"] == response.headers["request-id"] == own
                ids.add((await response.json())["id"])
        assert len(ids) == 2  # what is stored under an id must not be a client's to choose
        async with s.session.post(f"{s.url}/v1/messages", json={}, headers={"x-request-id": own}) as response:
            assert (await response.json())["request_id"] == own


async def test_a_request_id_of_another_shape_is_replaced(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        for bad in ("", " ", "0" * 65, "a b", "a/b", "é", "a;b", "<script>"):
            async with s.session.get(s.url, headers={"x-request-id": bad}) as response:
                assert response.headers["x-request-id"].startswith("req_")


async def test_a_gateway_for_other_machines_wants_keys() -> None:
    nobody = GatewaySettings(
        GatewayOptions(redis="redis://h", host="0.0.0.0", port=0, max_requests=1, request_timeout=1)
    )
    with pytest.raises(StartError, match=r"--host 0\.0\.0\.0"):
        await serve(nobody, asyncio.Event())
    published = GatewaySettings(
        GatewayOptions(
            redis="redis://h", host="0.0.0.0", port=0, max_requests=1, request_timeout=1, published_host="192.0.2.1"
        )
    )
    with pytest.raises(StartError, match=r"--published-host 192\.0\.2\.1"):
        await serve(published, asyncio.Event())


async def test_pages_of_other_sites_stay_outside_where_no_key_is_asked_for(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        # A form may post JSON without asking first, so the answer to a preflight is not enough.
        headers = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
        async with s.session.post(f"{s.url}/v1/chat/completions", data=b"{}", headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (403, "origin_not_allowed")
        assert not s.verifier.jobs


async def test_names_of_outsiders_stay_outside_where_no_key_is_asked_for(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        for path in ("/status", "/status/events", "/metrics", "/v1/models", "/", "/health", "/nope"):
            async with s.session.get(s.url + path, headers={"Host": "evil.example"}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (403, "host_not_allowed")
        async with s.session.get(f"{s.url}/metrics", headers={"Origin": "https://evil.example"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (403, "origin_not_allowed")
    async with stack(valkey_url, vocabulary, api_key=["k"]) as s:
        headers = {"Host": "models.example", "x-api-key": "k"}
        async with s.session.get(f"{s.url}/v1/models", headers=headers) as response:
            assert response.status == 200


async def test_keys_of_a_file_open_the_gateway(valkey_url: str, vocabulary: bytes, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = api_keys.add(file, "alice")
    async with stack(valkey_url, vocabulary, api_keys_file=str(file)) as s:
        for given, status in ((key, 200), (api_keys.digest(key).hex(), 401)):
            async with s.session.get(f"{s.url}/v1/models", headers={"x-api-key": given}) as response:
                assert response.status == status


async def test_a_body_that_never_ends_is_not_waited_for(
    valkey_url: str, vocabulary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.http.answering._BODY_S", 0.05)

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"messages": '
        await asyncio.Event().wait()

    async with stack(valkey_url, vocabulary) as s:
        async with s.session.post(f"{s.url}/v1/chat/completions", data=slowly()) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (408, "request_timeout")
        assert not s.verifier.jobs


async def test_a_text_far_too_long_is_refused_before_it_is_tokenised(
    valkey_url: str, vocabulary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.requests.bounds.MIN_CHARACTERS", 1000)
    text = "word " * 20_000
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}]},
        "/v1/completions": {"prompt": text},
        "/v1/responses": {"input": text},
        "/v1/messages": {"messages": [{"role": "user", "content": text}], "max_tokens": 5},
        "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": text}]},
        "/api/chat": {"model": MODEL, "messages": [{"role": "user", "content": text}]},
        "/api/generate": {"model": MODEL, "prompt": text},
        "/tokenize": {"content": [text]},
    }
    async with stack(valkey_url, vocabulary) as s:
        for path, body in bodies.items():
            async with s.session.post(s.url + path, json={"model": MODEL, **body}) as response:
                assert response.status == 400, path
                assert "prompt is too long" in await response.text()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template", "/tokenize"])
async def test_templates_are_the_operator_s_alone(valkey_url: str, vocabulary: bytes, path: str) -> None:
    template = "{{ messages }}"
    async with stack(valkey_url, vocabulary) as s:
        body: dict[str, Any] = {"messages": MESSAGES, "chat_template": template}
        async with s.session.post(s.url + path, json=body) as response:
            assert (response.status, (await response.json())["error"]["param"]) == (400, "chat_template")
        for name in ("messages", "tools", "bos_token"):
            body = {"messages": MESSAGES, "chat_template_kwargs": {name: template}}
            async with s.session.post(s.url + path, json=body) as response:
                assert response.status == 400


async def test_a_key_that_sends_too_much_in_a_minute_is_told_when_to_come_back(
    valkey_url: str, vocabulary: bytes
) -> None:
    done = fixed(Chunk(tokens=(), finish=Finish.STOP))
    async with stack(valkey_url, vocabulary, done, api_key=["one", "two"], max_requests_per_minute=2) as s:
        statuses = []
        for key in ("one", "one", "one", "two"):
            async with s.session.post(
                f"{s.url}/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
                headers={"Authorization": f"Bearer {key}"},
            ) as response:
                statuses.append(response.status)
                if response.status == 429:
                    assert (await response.json())["error"]["code"] == "rate_limit_exceeded"
                    assert 1 <= int(response.headers["Retry-After"]) <= 30
    assert statuses == [200, 200, 429, 200]


async def test_nothing_is_admitted_while_redis_is_nearly_full(
    valkey_url: str, vocabulary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.storage.headroom._FULL", 0.0)
    async with stack(valkey_url, vocabulary, request_timeout=5.0) as s:
        redis = cast(Any, s.clients.redis)
        await redis.config_set("maxmemory", 1 << 40)
        try:
            async with s.session.post(
                f"{s.url}/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]}
            ) as response:
                assert response.status == 503
                assert (await response.json())["error"]["code"] == "redis_full"
                assert 10 <= int(response.headers["Retry-After"]) <= 30
        finally:
            await redis.config_set("maxmemory", 0)
        assert s.verifier.jobs == []
