"""The pages for those who change the code name files that exist, and the rooms in their order."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import ROOT
from tests.unit.house.test_rooms import MODULES, ROOMS

MAP: Final = ROOT / "docs/map.md"
PAGES: Final = (MAP, *(ROOT / name for name in ("CONTRIBUTING.md", "docs/rationale.md", "docs/wire.md")))
TOP: Final = ("shared", "services", "install", "reference", "bench", "clients", "tests", "deploy", "docs")
PLACEHOLDER: Final = "NAME"  # where the reader puts a name


def paths(page: Path) -> list[str]:
    """Every path from the root of the repository that stands in inline code."""
    code = re.findall(r"`([^`\s]+)`", page.read_text())
    return [path for path in code if path.partition("/")[0] in TOP and "/" in path]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = paths(page)
    assert named
    assert not [path for path in named if PLACEHOLDER not in path and not (ROOT / path).exists()]


@pytest.mark.parametrize("base", ROOMS)
def test_the_map_names_the_rooms_in_their_order(base: str) -> None:
    rooms = [room for room in ROOMS[base] if MODULES[f"{base}.{room}"].name == "__init__.py"]
    line = next(line for line in MAP.read_text().splitlines() if line.startswith(f"- `{base.replace('.', '/')}"))
    assert line.partition(": ")[2].rstrip(".").split(", ") == rooms


def test_the_map_says_where_to_change_every_room() -> None:
    named = "\n".join(paths(MAP))
    for base, order in ROOMS.items():
        for room in order:
            if MODULES[f"{base}.{room}"].name == "__init__.py":
                assert f"{base.replace('.', '/')}/{room}/" in named
