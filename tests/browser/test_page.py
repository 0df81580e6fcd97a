"""What the page shows of the fleet, and how it bears what happens meanwhile."""

import asyncio
import re

import pytest
from playwright.async_api import Page, Response, expect

from shared.fleet import measured
from shared.law.payoff import sentence
from shared.model.llama.model import Model
from tests.browser.conftest import Visit
from tests.browser.fleets import DRAFTER, VERIFIER, ask, fleet, guessed, helper, ready
from tests.ports import free_port
from tests.service.scripted import fixed, stack

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_it_shows_the_fleet_and_says_what_drafts_are_worth(
    valkey_url: str, vocabulary: bytes, visit: Visit
) -> None:
    async with fleet(valkey_url, vocabulary, verifier=VERIFIER, others=[helper()]) as s:
        page = await visit(s.url)
        await expect(page.locator("#verdict")).to_have_text(re.compile("1 drafter: 2.4× plain decoding"))
        told = sentence(measured.of_verifier(VERIFIER, [helper()]))
        await expect(page.locator("#fleet")).to_contain_text(told)
        row = page.locator("#fleet tr", has_text="small-Q8_0")
        for fact in ("cuda:1", "0 of 8", "79 %", "+1.40 a round"):
            await expect(row).to_contain_text(fact)
        requests = page.locator("#requests")
        await expect(requests).to_contain_text("yes, its drafts pay")
        await expect(requests).to_contain_text("no: no draft was ready in time")
        await expect(page.locator("figure", has_text="Speed")).to_contain_text("43.2 tokens/s")
        await expect(page.get_by_role("img", name=re.compile("KV cache.*now 15 % running, 62 % held"))).to_be_visible()


async def test_where_something_is_missing_it_says_what_to_do(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    async with fleet(valkey_url, vocabulary) as s:
        page = await visit(s.url)
        await expect(page.locator("#advice")).to_contain_text("draftmesh join")
        await expect(page.locator("#requests")).to_contain_text(
            f"Nothing runs. Ask in the chat, or point a client at {s.url}/v1"
        )
    async with stack(valkey_url, vocabulary, cards=[]) as s:
        page = await visit(s.url)
        await expect(page.locator("#verdict")).to_have_text("Nothing is served: no verifier is connected.")
        await expect(page.locator("#advice")).to_contain_text("draftmesh up")


async def test_a_drafter_that_joins_and_leaves_is_seen_to(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    async with fleet(valkey_url, vocabulary) as s:
        page = await visit(s.url)
        row = page.locator("#fleet tr", has_text="small-Q8_0")
        await ready(page)
        await expect(row).to_have_count(0)
        await s.registry.beat(helper())
        await expect(row).to_have_count(1)
        await s.registry.leave(DRAFTER)
        await expect(row).to_have_count(0)


async def test_a_chart_has_a_past_before_anybody_looked(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    async with fleet(valkey_url, vocabulary, verifier=VERIFIER) as s:
        await asyncio.sleep(0.1)  # the first heartbeat's totals are kept
        page = await visit(s.url)
        await ready(page)
        path = await page.locator("figure", has_text="Speed").locator("path.main").get_attribute("d")
        assert path is not None
        assert path.count("L") >= 1  # two points make a line


async def test_dark_and_light_are_the_systems_or_chosen(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    async def is_dark() -> bool:
        colour = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 128

    async with fleet(valkey_url, vocabulary) as s:
        page = await visit(s.url, color_scheme="dark")
        assert await is_dark()
        await page.click("text=Theme: automatic")
        await expect(page.locator("#theme")).to_have_text("Theme: light")
        assert not await is_dark()
        await page.reload()
        assert not await is_dark()


@pytest.mark.parametrize("width", [400, 320])
async def test_a_phone_never_scrolls_sideways(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit, width: int
) -> None:
    script = fixed(*guessed(model, "word " * 40 + "x" * 300))
    async with fleet(valkey_url, vocabulary, script, verifier=VERIFIER, others=[helper(model="m" * 80)]) as s:
        page = await visit(s.url, viewport={"width": width, "height": 800}, has_touch=True, is_mobile=True)
        await ready(page)
        await ask(page, "y" * 200)
        await expect(page.locator(".note")).to_contain_text("tokens/s")
        await page.click("summary")
        assert await page.evaluate("document.documentElement.scrollWidth") == width


async def test_a_key_is_asked_for_kept_by_the_tab_and_sent(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit
) -> None:
    async with fleet(valkey_url, vocabulary, fixed(*guessed(model, "Hello")), api_key=["secret"]) as s:
        page = await visit(s.url)
        await expect(page.locator("#connection")).to_have_text("needs an API key")
        await expect(page.locator("#key")).to_be_focused()
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#key-error")).to_have_text("The gateway does not know this key.")
        await page.fill("#key", "secret")
        await page.keyboard.press("Enter")
        await ready(page)
        await expect(page.locator("#key-form")).to_be_hidden()
        await ask(page, "Hi")
        await expect(page.locator(".answer")).to_have_text("Hello")
        await page.reload()
        await ready(page)
        assert await page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


async def test_a_gateway_that_was_away_is_found_again(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    port = free_port()
    async with fleet(valkey_url, vocabulary, port=port) as s:
        page = await visit(s.url)
        await ready(page)
    await expect(page.locator("#connection")).to_have_text("not connected, trying again")
    async with fleet(valkey_url, vocabulary, port=port):
        await ready(page)


async def test_a_connection_that_fell_silent_is_made_anew(
    valkey_url: str, vocabulary: bytes, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.monitoring.watch.PERIOD_S", 60.0)
    async with fleet(valkey_url, vocabulary, heartbeat_s=60.0) as s:
        page = await visit(s.url, lambda page: page.clock.install())
        await ready(page)
        await page.evaluate(
            "const shown = document.getElementById('connection');"
            "new MutationObserver(() => (document.body.title = `${document.body.title};${shown.textContent}`))"
            ".observe(shown, { childList: true })"
        )
        await page.clock.run_for(8100)
        await expect(page.locator("body")).to_have_attribute("title", ";not connected, trying again;connected")


async def test_a_page_that_nobody_sees_holds_no_connection(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    async with fleet(valkey_url, vocabulary) as s:
        page = await visit(s.url, lambda page: page.clock.install())
        await ready(page)
        hide = "Object.defineProperty(document, 'hidden', {{configurable: true, value: {}}})"
        changed = "document.dispatchEvent(new Event('visibilitychange'))"
        await page.evaluate(f"{hide.format('true')}; {changed}")
        await page.clock.run_for(10_500)
        await expect(page.locator("#connection")).to_have_text("resting while nobody looks")
        await page.evaluate(f"{hide.format('false')}; {changed}")
        await ready(page)


async def test_it_is_light_and_quick(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    files: list[Response] = []

    async def weigh(page: Page) -> None:
        page.on("response", lambda response: files.append(response) if "/status/" not in response.url else None)

    async with fleet(valkey_url, vocabulary) as s:
        page = await visit(s.url, weigh)
        await ready(page)
        weight = sum([len(await file.body()) for file in files])
        paint_ms = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert len(files) > 10
    assert weight < 150_000
    assert paint_ms < 1000  # the goal is 300, which `make screenshots` measures
