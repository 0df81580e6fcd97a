"""The page over a real target and a real drafter: what it shows is what they do."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import Stack
from tests.browser.conftest import Visit
from tests.browser.fleets import ask, ready

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.model]


async def test_a_real_answer_is_marked_and_its_drafter_judged(model_path: Path, visit: Visit) -> None:
    engine, side = halves()
    async with Stack(model_path, engine_cores=engine, side_cores=side, ctx=512) as stack:
        await stack.start_drafter(None)
        page = await visit(stack.url)
        await ready(page)
        await expect(page.locator("#verdict")).to_have_text("Ready with 1 drafter; nothing has been asked yet.")
        await page.click("summary")
        await page.select_option("#chat-drafts", "always")
        await page.fill("#chat-temperature", "0")
        await page.fill("#chat-tokens", "48")
        await ask(page, "Write the word tree twenty times, separated by commas.")
        await expect(page.locator(".note")).to_contain_text("of drafts accepted", timeout=60_000)
        assert await page.locator(".token.mark-0").count() > 0
        row = page.locator("#fleet tr", has_text="lookup")
        await expect(row).to_contain_text(" a round", timeout=10_000)
        await expect(page.locator("#verdict")).to_contain_text("plain decoding")
        assert await page.locator(".answer").inner_text() != ""
