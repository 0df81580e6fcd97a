"""The fenced blocks of README.md, CONTRIBUTING.md and docs/, and what is said about running them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# The reference is made from the code, and has tests of its own.
PAGES: Final = tuple(
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not path.is_relative_to(ROOT / "docs/reference")
)
LANGUAGES: Final = frozenset({"sh", "console", "python", "toml", "json", "yaml", "text", ""})
_FENCE: Final = re.compile(r"^( *)(```+)(.*)$")
_MARKER: Final = re.compile(r"^ *<!-- not run: (.+) -->$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `reason` says why it is not run, from the comment in the line above; empty: it is."""

    page: Path
    line: int
    language: str
    text: str
    reason: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[str]:
        """The shell commands in it, one string each; continued lines are joined."""
        lines = self.text.splitlines()
        if self.language == "console":  # what follows a prompt is typed, the rest is shown
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
        return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def blocks(page: Path) -> Iterator[Block]:
    """Every block of a page, in order."""
    lines = page.read_text().splitlines()
    start = 0
    while start < len(lines):
        fence = _FENCE.match(lines[start])
        if not fence:
            start += 1
            continue
        indent, ticks, language = fence.groups()
        end = next(index for index in range(start + 1, len(lines)) if lines[index].strip() == ticks)
        marker = _MARKER.match(lines[start - 1]) if start else None
        text = "\n".join(line.removeprefix(indent) for line in lines[start + 1 : end])
        yield Block(page, start + 1, language.strip(), text, marker[1] if marker else "")
        start = end + 1


def prose(page: Path) -> str:
    """A page without its blocks."""
    lines = page.read_text().splitlines()
    inside = {
        number
        for block in blocks(page)
        for number in range(block.line - 1, block.line + block.text.count("\n") + (2 if block.text else 1))
    }
    return "\n".join(line for number, line in enumerate(lines) if number not in inside)


BLOCKS: Final = tuple(block for page in PAGES for block in blocks(page))
