"""`python -m tests.browser.screenshots`: pictures of the page for the README, from a real fleet at work.

Writes docs/images/page-{light,dark,phone}.png and tells how soon each page was painted.
"""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, expect
from rich.console import Console

from services.launcher.clients.streaming import AnswerError, stream
from services.launcher.fleet.cores import halves
from services.launcher.fleet.stack import Stack, run_to_end
from services.launcher.models.pair import build_pair
from services.launcher.models.progress import building
from shared.folders import cache_folder
from tests.browser.chromium import MISSING, executable, launched
from tests.browser.fleets import ask, ready

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
SCREENS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 400, "height": 820}, "is_mobile": True, "has_touch": True},
}
QUESTION: Final = "Write one sentence about the sea."
OTHERS: Final = (
    "Tell me about lighthouses.",
    "What is a tide? Explain it slowly.",
    "Describe a harbour in the morning.",
)
PAST_S: Final = 75.0  # of work before the first picture, for the charts
MOST_BYTES: Final = 200_000

console = Console()


async def _main() -> int:
    with building(console) as progress:
        pair = build_pair(cache_folder(), progress)
    engine, side = halves()
    async with Stack(pair.target, engine_cores=engine, side_cores=side, ctx=1024, parallel=4) as stack:
        await stack.start_drafter(pair.draft_8bit)
        await stack.start_drafter(None)
        async with _busy(stack), launched() as browser:
            await asyncio.sleep(PAST_S)
            for name, options in SCREENS.items():
                await _picture(browser, stack.url, name, options)
    return 0


@asynccontextmanager
async def _busy(stack: Stack) -> AsyncIterator[None]:
    """Somebody else asks something, again and again, with pauses."""

    async def work() -> None:
        for number in itertools.count():
            body = {"messages": [{"role": "user", "content": OTHERS[number % len(OTHERS)]}], "max_tokens": 200}
            with suppress(AnswerError):
                await stream(stack.http, {**body, "seed": number})
            await asyncio.sleep(3)

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _picture(browser: Browser, url: str, name: str, options: dict[str, Any]) -> None:
    context = await browser.new_context(**options)
    page = await context.new_page()
    await page.goto(url)
    await ready(page)
    paint_ms = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    await ask(page, QUESTION)
    await expect(page.locator(".note")).to_contain_text("tokens/s", timeout=120_000)
    await expect(page.locator("#requests table")).to_be_visible(timeout=60_000)
    await page.evaluate("document.activeElement.blur()")
    token = page.locator(".token[class*='mark-']").first
    await (token.tap() if options.get("has_touch") else token.hover())
    await page.evaluate("scrollTo(0, 0)")
    path = FOLDER / f"page-{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=path)
    await context.close()
    size = path.stat().st_size
    console.print(f"{path.name}: {size / 1000:.0f} kB, first paint after {paint_ms:.0f} ms")
    if size > MOST_BYTES:
        raise SystemExit(f"{path} is larger than {MOST_BYTES} bytes")


if __name__ == "__main__":
    if executable() is None:
        sys.exit(MISSING)
    sys.exit(run_to_end(_main()))
