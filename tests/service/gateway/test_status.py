"""The fleet over HTTP: the page, its files, the facts as JSON, and the stream of snapshots that the page reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from services.gateway.http.sse import event
from services.gateway.monitoring.watch import FleetWatch
from services.gateway.page.routes import load
from shared.fleet.describe import describe
from shared.wire.messages import Card, DrafterCounts, Job, RequestStatus, RoundStarts
from tests.patience import HANG_S
from tests.server import valkey_server
from tests.service.scripted import Stack, Step, card, stack
from tests.toys import drafter_card

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
FULL = card(
    row_ms=((1, 10.0), (8, 20.0)),
    requests=(RequestStatus(request_id="r", offset=3, tokens_per_round=1.5, drafters=("drafter-1",)),),
    drafters=(DrafterCounts(drafter="drafter-1", drafted=10, accepted=6, rounds=4, stale=1, added=2),),
    starts=(RoundStarts(after="refused", offset=1, rounds=3, ready=2),),
)


class Events:
    """The events of an open stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, Any]:
        """The next event's data; its name is the data's type."""
        async with asyncio.timeout(HANG_S):
            while True:
                block = (await self.response.content.readuntil(b"\n\n")).decode()
                if not block:
                    raise EOFError
                if not block.startswith(":"):
                    name, data = block.strip().split("\n")
                    value: dict[str, Any] = json.loads(data.removeprefix("data: "))
                    assert name == f"event: {value['type']}"
                    return value

    async def until(self, kind: str) -> dict[str, Any]:
        while (value := await self.next())["type"] != kind:
            pass
        return value


@asynccontextmanager
async def watching(s: Stack, **headers: str) -> AsyncIterator[Events]:
    async with s.session.get(f"{s.url}/status/events", headers=headers) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield Events(response)


async def status(s: Stack) -> dict[str, Any]:
    async with s.session.get(f"{s.url}/status") as response:
        assert response.status == 200
        value: dict[str, Any] = await response.json()
        return value


def as_json(cards: list[Card]) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(describe(cards)))
    return value


async def test_the_json_is_what_the_cards_say(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, cards=[FULL]) as s:
        await s.registry.beat(drafter_card("drafter-1", "model", "m"))
        assert await status(s) == as_json(await s.registry.list())


async def test_the_facts_need_a_key_and_the_page_does_not(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, api_key=["secret"]) as s:
        paths = ["/status", "/status/events", "/", f"/page/{load().version}/main.js"]
        answers = []
        for path in paths:
            async with s.session.get(s.url + path, headers=BROWSER) as response:
                answers.append(response.status)
        assert answers == [401, 401, 200, 200]
        async with watching(s, Authorization="Bearer secret") as events:
            assert (await events.until("status"))["verifiers"][0]["id"] == "verifier-1"


async def test_a_stream_begins_with_the_past_and_goes_on_every_second(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, cards=[FULL]) as s, watching(s) as events:
        history = await events.next()
        assert history["type"] == "history"
        assert all(point["slots"] == 4 and point["at"] for point in history["points"])
        first = await events.next()
        assert (first["type"], first["totals"]["running"]) == ("status", 1)
        second = await events.next()
        assert 0.9 < second["at"] - first["at"] < 3


async def test_a_look_at_the_streams_headers_ends(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        response = await asyncio.wait_for(s.session.head(f"{s.url}/status/events"), HANG_S)
        assert (response.status, response.content_type) == (200, "text/event-stream")


async def test_who_joins_and_leaves_is_seen(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s, watching(s) as events:
        assert (await events.until("status"))["drafters"] == []
        await s.registry.beat(drafter_card("drafter-1", "model", "m"))
        while not (await events.until("status"))["drafters"]:
            pass
        await s.registry.leave("drafter-1")
        while (await events.until("status"))["drafters"]:
            pass


async def test_waiting_requests_are_counted(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, lambda _: [asyncio.Event()]) as s:
        posts = [asyncio.create_task(s.post(model="smol", max_tokens=4)) for _ in range(3)]
        async with watching(s) as events:
            while (await events.until("status"))["totals"]["waiting"] != 2:  # the verifier holds the first
                await s.registry.beat(replace(card(), vocabulary=(await s.registry.list())[-1].vocabulary))  # type: ignore[union-attr]
        for post in posts:
            post.cancel()
        await asyncio.gather(*posts, return_exceptions=True)


async def test_readers_are_told_when_redis_goes_away_and_when_it_is_back(vocabulary: bytes) -> None:
    with valkey_server() as own:
        async with stack(own.url, vocabulary) as s, watching(s) as events:
            await events.until("status")
            own.stop()
            assert (await events.until("trouble"))["message"] == "Redis does not answer."


async def test_a_draining_gateway_ends_its_streams_and_takes_no_more(valkey_url: str, vocabulary: bytes) -> None:
    claimed, gate = asyncio.Event(), asyncio.Event()

    def script(_: Job) -> list[Step]:
        claimed.set()
        return [gate]

    async with stack(valkey_url, vocabulary, script, drain=5.0) as s:
        post = asyncio.create_task(s.post(max_tokens=4))
        await claimed.wait()
        async with watching(s) as events:
            await events.until("status")
            s.stop.set()
            with pytest.raises(EOFError):
                await events.until("never")
        async with s.session.get(f"{s.url}/status/events") as response:
            assert response.status == 503
        post.cancel()
        await asyncio.gather(post, return_exceptions=True)


# ---------------------------------------------------------------- one producer


async def test_nothing_is_made_for_nobody_and_once_for_many() -> None:
    looks = 0

    async def cards() -> list[Card]:
        nonlocal looks
        looks += 1
        return [card()]

    watch = FleetWatch(cards, event)
    running = asyncio.create_task(watch.run())
    await asyncio.sleep(0.02)
    assert looks == 0
    with watch.looking(), watch.looking(), watch.looking():
        snapshots = await asyncio.gather(*(watch.next(0) for _ in range(3)))
        assert looks == 1
        assert len(set(snapshots)) == 1
    running.cancel()


async def test_a_slow_reader_gets_the_newest_and_no_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.monitoring.watch.PERIOD_S", 0.001)
    watch = FleetWatch(_nobody, event)
    running = asyncio.create_task(watch.run())
    with watch.looking():
        first = await watch.next(0)
        assert first is not None
        while (newest := await watch.next(first[0] + 10)) is None:
            pass
        assert newest[0] > first[0] + 10
    running.cancel()


async def test_whoever_comes_later_waits_for_no_period() -> None:
    watch = FleetWatch(_nobody, event)
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(0.5):
        for _ in range(5):
            with watch.looking():
                assert await watch.next(0) is not None
    running.cancel()


async def _nobody() -> list[Card]:
    return []


async def test_the_past_is_kept_for_minutes_and_not_for_ever() -> None:
    moment = 0.0
    watch = FleetWatch(_nobody, event, clock=lambda: moment)
    for _ in range(1000):
        moment += 2
        watch.remember([card(tokens_per_second=3.5)])
    points = json.loads(watch.history().decode().split("data: ")[1])["points"]
    assert points[-1]["at"] - points[0]["at"] == pytest.approx(300, abs=2)
    assert points[-1]["tokens_per_second"] == 3.5


# ---------------------------------------------------------------- the page's files


async def fetch(s: Stack, path: str, **headers: str) -> tuple[int, Any, str]:
    async with s.session.get(s.url + path, headers=headers) as response:
        return response.status, response.headers, await response.text()


async def test_browsers_get_a_page_and_others_a_line(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        for accept in ("*/*", "application/json", ""):
            code, headers, text = await fetch(s, "/", Accept=accept)
            assert (code, text.startswith("draftmesh is running")) == (200, True)
            assert "Accept" in headers["Vary"]
        code, headers, text = await fetch(s, "/", **BROWSER)
        assert (code, headers["Content-Type"], text[:15]) == (200, "text/html; charset=utf-8", "<!doctype html>")
        tag = headers["ETag"]
        assert (await fetch(s, "/", **BROWSER, **{"If-None-Match": tag}))[0] == 304


async def test_nothing_but_ourselves_may_be_loaded_and_nobody_may_frame_us(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary) as s:
        for path in ("/", f"/page/{load().version}/main.js"):
            _, headers, _ = await fetch(s, path, **BROWSER)
            policy = headers["Content-Security-Policy"]
            assert "default-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"


async def test_files_are_kept_for_ever_under_the_version_of_their_contents(valkey_url: str, vocabulary: bytes) -> None:
    page = load()
    async with stack(valkey_url, vocabulary) as s:
        for name, file in page.files.items():
            code, headers, text = await fetch(s, f"/page/{page.version}/{name}")
            assert (code, text.encode(), headers.getone("Content-Type")) == (
                200,
                file.body,
                f"{file.media}; charset=utf-8",
            )
            assert "immutable" in headers["Cache-Control"]
        for path in (f"/page/0000/{name}", f"/page/{page.version}/routes.py", f"/page/{page.version}/..%2froutes.py"):
            assert (await fetch(s, path))[0] == 404


def test_the_page_names_every_module_that_it_loads() -> None:
    page = load()
    text = page.index.body.decode()
    assert "VERSION" not in text
    assert {name for name in page.files if f"page/{page.version}/{name}" not in text} == set()


def test_no_file_can_make_markup_of_text() -> None:
    page = load()
    sources = {name: file.body.decode() for name, file in page.files.items()} | {"index": page.index.body.decode()}
    for name, source in sources.items():
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick=", "style="):
            assert word not in source, name


def test_the_page_is_light() -> None:
    page = load()
    assert sum(len(file.body) for file in (page.index, *page.files.values())) < 60_000
