"""The site builds without a warning, and nothing in it is fetched from another host."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

# Elements whose address is fetched while the page is shown. A plain link is not.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}


class Addresses(HTMLParser):
    """Collects what a browser would fetch, and what the theme would fetch for a page that asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in FETCHED:
            self.found.append(given.get(FETCHED[tag]) or "")
        if "mermaid" in (given.get("class") or "").split():
            self.found.append("https://mermaid")  # the theme would load it


def foreign(html: str) -> list[str]:
    """The addresses on other hosts that a browser would fetch for this page."""
    addresses = Addresses()
    addresses.feed(html)
    return [address for address in addresses.found if "//" in address]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    assert not {page.name: found for page in site.rglob("*.html") if (found := foreign(page.read_text()))}
    assert not [
        sheet for sheet in site.rglob("*.css") if "url(http" in sheet.read_text() or "url(//" in sheet.read_text()
    ]


@pytest.mark.parametrize(
    "html", ['<script src="https://a/b.js">', '<link rel="preconnect" href="//a">', '<pre class="mermaid">']
)
def test_a_foreign_address_would_be_noticed(html: str) -> None:
    assert foreign(html)


def test_a_plain_link_may_point_anywhere() -> None:
    assert not foreign('<a href="https://a">')
