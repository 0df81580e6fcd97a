"""What probes are told: whether the process works, whether it can serve, and whether what runs gets on."""

import asyncio
from typing import Any

import pytest

from services.gateway.monitoring.loop_health import LoopHealth
from services.gateway.views import health
from services.launcher.fleet.stack import readiness
from shared.fleet.registry import VocabularyKeeper
from shared.model.model_source import resolve
from shared.model.vocabulary import vocabulary_gguf
from shared.wire import keys
from shared.wire.messages import Chunk, Finish
from tests.patience import HANG_S
from tests.server import valkey_server
from tests.service.scripted import HI, MESSAGES, MODEL, VOCABULARY, Stack, card, fixed, stack


async def probe(s: Stack, path: str) -> tuple[int, dict[str, Any]]:
    async with s.session.get(s.url + path) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(("path", "alias"), [("/livez", "/health"), ("/readyz", "/ready")])
async def test_probes_have_the_names_that_orchestrators_use(
    valkey_url: str, vocabulary: bytes, path: str, alias: str
) -> None:
    async with stack(valkey_url, vocabulary, api_key=["secret"]) as s:
        for name in (path, alias):
            status, body = await probe(s, name)
            assert (status, body["status"]) in ((200, "ok"), (200, "ready"))


async def test_a_held_up_loop_is_not_alive(valkey_url: str, vocabulary: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stack(valkey_url, vocabulary) as s:
        monkeypatch.setattr(LoopHealth, "lag", 7.5)
        assert await probe(s, "/livez") == (503, {"status": "slow", "lag_s": 7.5})


async def test_without_redis_it_is_alive_and_not_ready(vocabulary: bytes) -> None:
    with valkey_server() as own:
        async with stack(own.url, vocabulary) as s:
            own.stop()
            assert [(await probe(s, path))[0] for path in ("/livez", "/readyz")] == [200, 503]


async def test_requests_that_stand_still_are_told(
    valkey_url: str, vocabulary: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = asyncio.Event()
    script = fixed(Chunk(tokens=(HI,)), going, Chunk(tokens=(HI,), finish=Finish.LENGTH))
    async with stack(valkey_url, vocabulary, script) as s:
        monkeypatch.setattr(health, "STALLED_S", 0.05)
        assert (await probe(s, "/health/progress"))[0] == 200  # nothing runs, so nothing stands still
        body = {"model": MODEL, "messages": MESSAGES, "stream": True}
        async with s.session.post(f"{s.url}/v1/chat/completions", json=body) as response:
            await response.content.readuntil(b"Hi")
            async with asyncio.timeout(HANG_S):
                while (await probe(s, "/health/progress"))[0] == 200:  # noqa: ASYNC110 - time passes
                    await asyncio.sleep(0.01)
            monkeypatch.setattr(health, "STALLED_S", 60.0)
            assert await probe(s, "/health/progress") == (200, {"status": "ok", "running": 1, "silence_s": 0})
            monkeypatch.setattr(health, "STALLED_S", 0.05)
            going.set()
            await response.read()
        async with asyncio.timeout(HANG_S):
            while (await probe(s, "/health/progress"))[1]["running"]:  # noqa: ASYNC110 - it ends in the gateway
                await asyncio.sleep(0)
        assert (await probe(s, "/health/progress"))[0] == 200


async def test_a_gateway_that_cannot_load_its_models_vocabulary_is_not_ready(valkey_url: str) -> None:
    async with stack(valkey_url, b"GGUF" + bytes(60)) as s:
        reason = f"{MODEL}: The model's vocabulary cannot be loaded."
        for _ in range(2):
            assert await probe(s, "/readyz") == (503, {"status": "unavailable", "missing": [reason], "speechless": {}})
        assert (await s.post(model=MODEL))[0] == 500
        await s.registry.beat(card(id="verifier-2", model="other", vocabulary=VOCABULARY))
        keeper = VocabularyKeeper(s.registry, keys.vocabulary, lambda: vocabulary_gguf(resolve("default")))
        await keeper.keep()
        async with asyncio.timeout(HANG_S):
            while (await probe(s, "/readyz"))[0] != 200:  # noqa: ASYNC110 - the card is noticed within a second
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("template", "reason"),
    [("", "no chat template"), ("{% for %}", "the model's chat template does not compile: ")],
)
async def test_a_model_that_takes_no_messages_is_told_and_completes_text(
    valkey_url: str, template: str, reason: str
) -> None:
    vocabulary = vocabulary_gguf(resolve("default"), template or "{{ gone }}")
    if not template:  # without the key
        vocabulary = vocabulary.replace(b"tokenizer.chat_template", b"tokenizer.chat_templat_")
    async with stack(valkey_url, vocabulary, fixed(Chunk(tokens=(HI,), finish=Finish.LENGTH))) as s:
        status, body = await probe(s, "/readyz")
        assert (status, list(body["speechless"])) == (200, [MODEL])
        assert reason in body["speechless"][MODEL]
        assert await readiness(s.session, s.url) == body, "`up` reads it there"
        status, answer = await s.post(model=MODEL)
        assert (status, reason in answer["error"]["message"]) == (400, True)
        async with s.session.post(f"{s.url}/v1/completions", json={"model": MODEL, "prompt": "Why"}) as response:
            assert (response.status, (await response.json())["choices"][0]["text"]) == (200, "Hi")
