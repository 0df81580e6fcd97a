"""Reads text that arrives in pieces as if it were complete.

A step is a generator that yields where it needs more text and returns what it read. What a step does depends on the
text alone, never on how it was cut into pieces, and takes time linear in it.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]

_SPACES: Final = re.compile(r"\s+")


class SoughtMarks:
    """Texts to look for. None may be the beginning of another, because then the next character would decide."""

    def __init__(self, marks: Sequence[str]) -> None:
        assert not any(a != b and a.startswith(b) for a in marks for b in marks)
        self._marks = tuple(marks)
        self._pattern = re.compile("|".join(map(re.escape, marks)))
        self._first = re.compile("[" + "".join(re.escape(mark[0]) for mark in marks) + "]")
        self._beginnings = frozenset(mark[:length] for mark in marks for length in range(1, len(mark)))
        self._longest = max(map(len, marks))

    def find(self, text: str, start: int) -> re.Match[str] | None:
        """The first mark from `start` on."""
        return self._pattern.search(text, start)

    def cut(self, text: str, start: int) -> int:
        """The index from which the end of `text` is most of a mark that was cut off there."""
        at = self.pending(text, start)
        rest = text[at:]
        return at if any(mark.startswith(rest) and 2 * len(rest) >= len(mark) for mark in self._marks) else len(text)

    def pending(self, text: str, start: int) -> int:
        """The index from which the end of `text`, which holds no mark, may be the beginning of one."""
        at = max(start, len(text) - self._longest + 1)
        while (found := self._first.search(text, at)) is not None:
            if text[found.start() :] in self._beginnings:
                return found.start()
            at = found.start() + 1
        return len(text)


class Reader:
    """The text of one answer: `feed` it, and `end` it when no more comes."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._ended = False
        self._held: list[str] | None = None

    def feed(self, text: str) -> None:
        self._text, self._at = self._text[self._at :] + text, 0

    def end(self) -> None:
        self._ended = True

    @property
    def exhausted(self) -> bool:
        """Everything was read and nothing follows."""
        return self._ended and self._at == len(self._text)

    def hold(self, before: str = "") -> None:
        """Keep the text read from here on, and `before`, in case it must be read again as something else."""
        self._held = [before]

    def release(self) -> str:
        """End `hold` and return the text kept since; "" if it ended before."""
        held, self._held = "".join(self._held or ()), None
        return held

    def more(self) -> Steps[bool]:
        """Wait for a character; False if none follows."""
        while self._at == len(self._text):
            if self._ended:
                return False
            yield
        return True

    def peek(self) -> Steps[str]:
        """The next character, unread; "" if none follows."""
        return self._text[self._at] if (yield from self.more()) else ""

    def take(self, length: int) -> str:
        """The next `length` characters, which are there."""
        return self._advance(self._at + length)

    def consume(self, scan: Callable[[str, int], tuple[str, int]]) -> str:
        """The result of `scan(text, start)` on the text so far; `scan` also returns where to continue."""
        made, to = scan(self._text, self._at)
        self._advance(to)
        return made

    def run(self, pattern: re.Pattern[str]) -> Steps[str]:
        """The longest run of characters that `pattern` (of the shape `[…]+`) matches, maybe none."""
        found: list[str] = []
        while (yield from self.more()):
            match = pattern.match(self._text, self._at)
            if match is None:
                break
            found.append(self._advance(match.end()))
        return "".join(found)

    def spaces(self) -> Steps[str]:
        """White space, maybe none."""
        return (yield from self.run(_SPACES))

    def next_is(self, *marks: str) -> Steps[str]:
        """Which of the marks follows, unread; "" if none does."""
        while True:
            rest = self._text[self._at : self._at + max(map(len, marks))]
            for mark in marks:
                if rest.startswith(mark):
                    return mark
            if self._ended or not any(mark.startswith(rest) for mark in marks):
                return ""
            yield

    def skip(self, *marks: str) -> Steps[str]:
        """Read the mark that follows; "" if none of them does. Also reads a mark that the end of the text cut off."""
        mark = yield from self.next_is(*marks)
        rest = "" if mark else self._text[self._at :]
        cut = self._ended and any(mark.startswith(rest) for mark in marks)
        self.take(len(rest) if cut else len(mark))
        return mark

    def rest(self, give: Callable[[str], None]) -> Steps[None]:
        """Pass on all text that comes."""
        while (yield from self.more()):
            give(self._advance(len(self._text)))

    def until(self, marks: SoughtMarks, give: Callable[[str], None], *, cuts: bool = False) -> Steps[str]:
        """Pass text on up to the next mark, and read that; "" once the text ended without one.

        `cuts`: does not pass on most of a mark that the end of the text cut off.
        """
        while True:
            found = marks.find(self._text, self._at)
            if found is not None:
                give(self._advance(found.start()))
                return self._advance(found.end())
            if self._ended:
                give(self._advance(marks.cut(self._text, self._at) if cuts else len(self._text)))
                self._advance(len(self._text))
                return ""
            give(self._advance(marks.pending(self._text, self._at)))
            yield

    def _advance(self, to: int) -> str:
        taken = self._text[self._at : to]
        self._at = to
        if self._held is not None and taken:
            self._held.append(taken)
        return taken
