"""Debian's Chromium, driven by Playwright without a browser of its own."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from playwright.async_api import Browser, async_playwright

REQUIRED: Final = "DRAFTMESH_TEST_BROWSER"  # set: what the browser tests need must be there
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING: Final = "no Chromium here; on Debian: apt-get install --no-install-recommends chromium"


def executable() -> str | None:
    """Where Chromium is, if it is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A running Chromium. Raises `FileNotFoundError` where there is none."""
    path = executable()
    if path is None:
        raise FileNotFoundError(MISSING)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            await browser.close()
