"""Markdown for the generated pages. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

NOTE: Final = "<!-- Made from the code by `make reference`: edit there, not here. -->"


def page(title: str, *parts: str) -> str:
    """A whole file: a title, the note that it is generated, and parts with an empty line between them."""
    return "\n\n".join([f"# {title}", NOTE, *parts]) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what would end a cell is escaped."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join(lines)


def code(text: object) -> str:
    """`text` as inline code; nothing for nothing."""
    return f"`{text}`" if text not in (None, "") else ""


def codes(texts: Iterable[object]) -> str:
    """Several pieces of inline code."""
    return ", ".join(map(code, texts))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
