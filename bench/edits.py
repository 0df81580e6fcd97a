"""Edits as people and agents make them: names change, lines change, come, go and move. Pure, the same for a seed."""

import difflib
import keyword
import re
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,}")
_NEW_WORDS: Final = ("ledger", "window", "budget", "cursor", "anchor", "parcel", "harbor", "signal", "ticket", "beacon")


def edited(text: str, kept: float, random: Random, others: Sequence[str]) -> str:
    """`text` edited until lines that stay make up at most `kept` of its characters.

    Lines that are added come from `others`, so they look like code and are not in `text`.
    """
    lines = text.splitlines(keepends=True)
    kinds: tuple[Callable[[list[str], Random, Sequence[str]], None], ...] = (_rename, _alter, _alter, _insert, _delete)
    for _ in range(len(lines)):
        random.choice((*kinds, _move) if len(lines) > 40 else kinds)(lines, random, others)
        if kept_share(text, "".join(lines)) <= kept:
            break
    return "".join(lines)


def kept_share(before: str, after: str) -> float:
    """Share of the characters of `after` on lines that are those of `before`, in order."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return sum(len(line) for block in blocks for line in new[block.b : block.b + block.size]) / max(1, len(after))


def _rename(lines: list[str], random: Random, _: Sequence[str]) -> None:
    counts = Counter(word for word in _WORD.findall("".join(lines)) if not keyword.iskeyword(word))
    names = sorted(word for word, count in counts.items() if 2 <= count <= 6)
    if names:
        old, new = random.choice(names), f"{random.choice(_NEW_WORDS)}_{random.choice(_NEW_WORDS)}"
        lines[:] = [re.sub(rf"\b{old}\b", new, line) for line in lines]


def _alter(lines: list[str], random: Random, _: Sequence[str]) -> None:
    """Another word or number in one line, or a few words more at its end."""
    index = random.choice([index for index, line in enumerate(lines) if line.strip()])
    words = list(re.finditer(r"\w+", lines[index]))
    if not words or random.random() < 0.25:
        lines[index] = f"{lines[index].rstrip()}  # {random.choice(_NEW_WORDS)} {random.choice(_NEW_WORDS)}\n"
        return
    word = random.choice(words)
    new = str(random.randrange(2, 500)) if word[0].isdigit() else random.choice(_NEW_WORDS)
    lines[index] = lines[index][: word.start()] + new + lines[index][word.end() :]


def _insert(lines: list[str], random: Random, others: Sequence[str]) -> None:
    source = random.choice(others).splitlines(keepends=True)
    size = random.randint(1, 6)
    start = random.randrange(max(1, len(source) - size))
    at = random.randrange(len(lines))
    lines[at:at] = source[start : start + size]


def _delete(lines: list[str], random: Random, _: Sequence[str]) -> None:
    size = random.randint(1, 5)
    if len(lines) > 2 * size:
        start = random.randrange(len(lines) - size)
        del lines[start : start + size]


def _move(lines: list[str], random: Random, _: Sequence[str]) -> None:
    size = random.randint(4, 12)
    start = random.randrange(len(lines) - size)
    block = lines[start : start + size]
    del lines[start : start + size]
    at = random.randrange(len(lines))
    lines[at:at] = block
