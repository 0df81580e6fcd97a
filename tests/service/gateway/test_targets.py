"""Several models behind one gateway: asked for by name, known by their aliases, and missed when they are gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from shared.fleet.registry import SERVED_TTL_MS, VocabularyKeeper
from shared.model.llama.model import Model
from shared.wire import keys
from shared.wire.messages import Job
from tests.service.scripted import MESSAGES, MODEL, FakeVerifier, Script, Stack, Step, card, speaking, stack

BIG = "other/big"
CARDS = [card(aliases=("fast", "default")), card(id="verifier-2", model=BIG, aliases=("smart",), created=2)]


async def get(s: Stack, path: str, status: int = 200) -> Any:
    async with s.session.get(s.url + path) as response:
        assert response.status == status, await response.text()
        return await response.json()


@asynccontextmanager
async def second(s: Stack, model: str, script: Script) -> AsyncIterator[FakeVerifier]:
    """One more verifier, for another model."""
    verifier = FakeVerifier(s.clients, script, model)
    task = asyncio.create_task(verifier.run())
    try:
        yield verifier
    finally:
        task.cancel()


async def test_each_request_goes_to_the_verifier_of_the_model_it_names(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    async with (
        stack(valkey_url, vocabulary, speaking(model, "small"), cards=CARDS) as s,
        second(s, BIG, speaking(model, "big")),
    ):
        said: dict[str | None, tuple[str, str]] = {}
        for name in (MODEL, BIG, "fast", "smart", "smart:latest", "default", None):
            status, body = await s.post(**({} if name is None else {"model": name}))
            assert status == 200
            said[name] = (body["model"], body["choices"][0]["message"]["content"])
    small, big = (MODEL, "small"), (BIG, "big")
    assert [said.pop(name) for name in (BIG, "smart", "smart:latest")] == [big] * 3
    assert list(said.values()) == [small] * 4


async def test_two_models_at_once_answer_side_by_side(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    going = asyncio.Event()
    async with (
        stack(valkey_url, vocabulary, lambda job: [going, *speaking(model, "slow")(job)], cards=CARDS) as s,
        second(s, BIG, speaking(model, "quick")),
    ):
        slow = asyncio.create_task(s.post(model=MODEL))
        assert (await s.post(model=BIG))[1]["choices"][0]["message"]["content"] == "quick"
        assert not slow.done()
        going.set()
        assert (await slow)[1]["choices"][0]["message"]["content"] == "slow"


async def test_the_lists_have_every_name_and_say_what_it_means(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, cards=CARDS) as s:
        listed = (await get(s, "/v1/models"))["data"]
        one = await get(s, "/v1/models/smart")
        tags = (await get(s, "/api/tags"))["models"]
        running = (await get(s, "/api/ps"))["models"]
        loaded = (await get(s, "/api/v0/models"))["data"]
        properties = await get(s, "/props?model=fast")
        slots = await get(s, "/slots?model=smart")
    assert [(entry["id"], entry["root"], entry.get("parent")) for entry in listed] == [
        (MODEL, MODEL, None),  # the default model comes first
        (BIG, BIG, None),
        ("default", MODEL, MODEL),
        ("fast", MODEL, MODEL),
        ("smart", BIG, BIG),
    ]
    assert one == listed[-1]
    assert [(tag["name"], tag["details"]["parent_model"]) for tag in tags] == [
        (MODEL, ""),
        (BIG, ""),
        ("default", MODEL),
        ("fast", MODEL),
        ("smart", BIG),
    ]
    assert tags[-1]["digest"] == tags[1]["digest"]
    assert [entry["name"] for entry in running] == [entry["id"] for entry in loaded] == [MODEL, BIG]
    assert properties["model_path"] == MODEL
    assert {slot["model"] for slot in slots} == {BIG}


async def test_an_unknown_name_is_a_404_with_the_known_ones_and_the_nearest(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, cards=CARDS) as s:
        status, body = await s.post(model="smrt")
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert body["error"]["message"] == (
        "The model 'smrt' does not exist. Did you mean 'smart'?"
        " Served: smol (also default, fast), other/big (also smart)."
    )


async def test_a_model_is_found_as_soon_as_it_is_there(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with (
        stack(valkey_url, vocabulary, cards=CARDS[:1]) as s,
        second(s, BIG, speaking(model, "big")),
    ):
        assert (await s.post(model=BIG))[0] == 404
        keeper = VocabularyKeeper(s.registry, keys.vocabulary, lambda: vocabulary)
        await s.registry.beat(replace(CARDS[1], vocabulary=keeper.digest))
        assert (await s.post(model=BIG))[0] == 200


async def test_a_claude_model_is_an_alias_where_somebody_claims_it_and_else_the_default(
    valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    cards = [CARDS[0], replace(CARDS[1], aliases=("claude-opus",))]
    ask = {"max_tokens": 9, "messages": MESSAGES}
    async with (
        stack(valkey_url, vocabulary, speaking(model, "small"), cards=cards) as s,
        second(s, BIG, speaking(model, "big")),
    ):
        found = {}
        for name in ("claude-opus", "claude-haiku"):
            async with s.session.post(f"{s.url}/v1/messages", json={**ask, "model": name}) as response:
                body = await response.json()
                found[name] = (body["content"][0]["text"], response.headers.get("x-draftmesh-warning"))
    assert found["claude-opus"] == ("big", None)
    assert found["claude-haiku"] == ("small", "'claude-haiku' is not served here; the default model answers")


async def test_a_model_that_was_served_is_a_503_that_says_since_when_it_is_gone(
    valkey_url: str, vocabulary: bytes
) -> None:
    async with stack(valkey_url, vocabulary) as s:
        await s.registry.remember(CARDS[1])
        redis: Any = s.clients.redis
        for name in (BIG, "smart"):
            assert SERVED_TTL_MS - 1000 < await redis.pttl(keys.served(name)) <= SERVED_TTL_MS
            await redis.pexpire(keys.served(name), SERVED_TTL_MS - 300_000)
        for asked, shown in (
            (BIG, f"'{BIG}'"),
            (f"{BIG}:latest", f"'{BIG}:latest'"),
            ("smart", f"'smart' (it meant '{BIG}')"),
        ):
            async with s.session.post(f"{s.url}/v1/chat/completions", json={"model": asked, "messages": MESSAGES}) as r:
                error = (await r.json())["error"]
                assert (r.status, error["code"]) == (503, "model_not_served")
                assert 1 <= int(r.headers["Retry-After"]) <= 3
            assert error["message"] == (
                f"The model {shown} is not served now: its last verifier was seen 5 minutes ago. Served instead: smol."
            )
        assert (await get(s, f"/v1/models/{BIG}", 503))["error"]["code"] == "model_not_served"
        assert (await s.post(model="never"))[0] == 404


async def test_requests_outlive_their_last_verifier_for_a_while_and_are_then_told(
    valkey_url: str, vocabulary: bytes
) -> None:
    begun = asyncio.Event()

    def script(_: Job) -> list[Step]:
        begun.set()
        return [asyncio.Event()]

    async with stack(valkey_url, vocabulary, script, cards=CARDS, absence_grace=1.0) as s:
        frames, whole = asyncio.create_task(s.frames(model=MODEL)), asyncio.create_task(s.post(model=MODEL))
        other = asyncio.create_task(s.post(model=BIG))  # waits too, and may
        await begun.wait()
        await s.registry.leave("verifier-1")
        [error] = [frame["error"] for frame in await frames if "error" in frame]
        status, body = await whole
        assert not other.done()
        assert await s.clients.redis.zrange(keys.admitted(MODEL), 0, -1) == []
    assert status == 503
    assert error == body["error"]
    assert error["code"] == "model_not_served"
    assert error["message"] == (
        "The model 'smol' is not served any more: its last verifier left, and none came within 1 second."
        " Served instead: other/big (also smart)."
    )
