"""axe-core finds nothing to complain of, in whatever state the page is."""

from typing import Any

import pytest
from playwright.async_api import Page, expect

from shared.model.llama.model import Model
from tests.browser.conftest import Visit
from tests.browser.fleets import VERIFIER, ask, fleet, guessed, helper, ready
from tests.service.scripted import fixed

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"viewport": {"width": 400, "height": 800}, "is_mobile": True, "has_touch": True}


async def violations(page: Page, axe: str) -> list[str]:
    await page.evaluate(axe)
    found = await page.evaluate("axe.run()")
    return [f"{one['id']}: {node['html']}" for one in found["violations"] for node in one["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", [{}, PHONE], ids=["desktop", "phone"])
async def test_an_answer_beside_a_busy_fleet(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit, axe: str, theme: str, screen: dict[str, Any]
) -> None:
    script = fixed(*guessed(model, "The sky is blue because air scatters short waves."))
    others = [helper(), helper("drafter-b", kind="lookup", model="")]
    async with fleet(valkey_url, vocabulary, script, verifier=VERIFIER, others=others) as s:
        page = await visit(s.url, color_scheme=theme, **screen)
        await ready(page)
        await ask(page, "Why is the sky blue?")
        await expect(page.locator(".note")).to_contain_text("tokens/s")
        await page.click("summary")
        await page.focus(".answer")
        await page.keyboard.press("ArrowRight")
        assert await violations(page, axe) == []


async def test_an_empty_fleet(valkey_url: str, vocabulary: bytes, visit: Visit, axe: str) -> None:
    async with fleet(valkey_url, vocabulary) as s:
        page = await visit(s.url)
        await ready(page)
        assert await violations(page, axe) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_asking_for_a_key(valkey_url: str, vocabulary: bytes, visit: Visit, axe: str, theme: str) -> None:
    async with fleet(valkey_url, vocabulary, api_key=["secret"]) as s:
        page = await visit(s.url, color_scheme=theme)
        await page.fill("#key", "wrong")
        await page.press("#key", "Enter")
        await expect(page.locator("#key-error")).not_to_be_empty()
        assert await violations(page, axe) == []
