"""Where to cut a long text so that its pieces' tokens are the whole text's tokens. Pure.

llama.cpp finds special tokens first and tokenises what lies between them; the first takes time quadratic in how many
there are. So this cuts after special tokens that no other special token can overlap: llama.cpp would separate the text
there too.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

PIECE: Final = 4096  # characters; any text this short takes a millisecond


class CutMarks:
    def __init__(self, special: Iterable[str], marks: Iterable[str]) -> None:
        """`special` are the texts of all tokens that llama.cpp finds first, `marks` those after which to cut."""
        known = {text for text in special if text}
        heads = {text[:end] for text in known for end in range(1, len(text))}
        tails = {text[start:] for text in known for start in range(1, len(text))}
        inner = {part for text in known for part in _inner(text, len(text) - 1)}
        self._marks = frozenset(
            mark
            for mark in marks
            if mark in known
            and len(mark) < PIECE
            and mark not in inner
            and known.isdisjoint(_inner(mark, len(mark) - 1))
            and heads.isdisjoint(mark[start:] for start in range(1, len(mark)))
            and tails.isdisjoint(mark[:end] for end in range(1, len(mark)))
        )
        self._lengths = sorted({len(mark) for mark in self._marks})
        self._ends = re.compile("|".join(sorted({re.escape(mark[-1]) for mark in self._marks})))

    def cut(self, text: str) -> Iterator[str]:
        """The text in pieces that end with marks, none of them much longer than `PIECE` if marks are dense."""
        start = 0
        while self._marks and len(text) - start > PIECE:
            end = self._end(text, start + PIECE)
            if end is None:
                break
            yield text[start:end]
            start = end
        yield text[start:]

    def _end(self, text: str, start: int) -> int | None:
        """The end of the first mark that ends after `start`."""
        for match in self._ends.finditer(text, start):
            end = match.end()
            if any(text[end - length : end] in self._marks for length in self._lengths):
                return end
        return None


def _inner(text: str, longest: int) -> Iterator[str]:
    for start in range(len(text)):
        for end in range(start + 1, min(len(text), start + longest) + 1):
            yield text[start:end]
