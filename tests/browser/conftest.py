"""One browser for all tests, and visits to a page that are checked when they end."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.browser.chromium import MISSING, REQUIRED, executable, launched
from tests.service.conftest import model, vocabulary

__all__ = ["model", "vocabulary"]  # fixtures

AXE: Final = Path(__file__).parents[2] / ".cache/axe/node_modules/axe-core/axe.min.js"
Visit = Callable[..., Awaitable[Page]]


def lacking(what: str) -> None:
    """Fail where the browser's tests are required, else skip."""
    if os.environ.get(REQUIRED):
        pytest.fail(what)
    pytest.skip(what)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if executable() is None:
        lacking(MISSING)
    async with launched() as one:
        yield one


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core."""
    if not AXE.exists():
        lacking("axe-core is not installed; `make axe` does it with npm")
    return AXE.read_text()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    """Opens a page: `await visit(url, prepare, **options)`, options being those of a Playwright context.

    `prepare` gets the page while it is still empty.

    At the end no script may have failed and nothing may have been asked of another host.
    """
    errors: list[str] = []
    asked: set[str] = set()
    visited: set[str] = set()
    contexts = []

    async def one(url: str, prepare: Callable[[Page], Awaitable[object]] | None = None, **options: Any) -> Page:
        context = await browser.new_context(**options)
        contexts.append(context)
        page = await context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
        visited.add(urlsplit(url).netloc)
        if prepare is not None:
            await prepare(page)
        await page.goto(url)
        return page

    yield one
    for context in contexts:
        await context.close()
    # Refused and broken connections, which some tests bring about, are logged by the browser itself.
    assert [error for error in errors if "Failed to load resource" not in error and "net::ERR" not in error] == []
    assert asked <= visited
