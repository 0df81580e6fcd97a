"""Collects the parts that a parser has read. It drops the white space around thinking and calls."""

import secrets
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text, Thought

NewId = Callable[[], str]
_PARAGRAPH: Final = "\n\n"
random_id: Final[NewId] = partial(secrets.token_hex, 12)


class PartSink:
    """The parts of one answer; `take` returns those that came since the last call."""

    def __init__(self, names: Collection[str], *, parallel: bool, new_id: NewId) -> None:
        """`names` are the functions that may be called; without `parallel` only the first call counts."""
        self._names = frozenset(names)
        self._parallel = parallel
        self._new_id = new_id
        self._parts: list[Part] = []
        self._spaces: list[str] = []  # white space that counts only if more text or thought follows
        self._kind: type[Text] | type[Thought] = Text
        self._final = False  # nothing but text follows
        self._fresh = False  # nothing but white space came since the last thought or call
        self._last: type[Text] | type[Thought] | None = None  # None behind a call
        self._calls = 0

    def take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def text(self, text: str) -> None:
        self._say(Text, text)

    def thought(self, text: str) -> None:
        self._say(Thought, text)

    def separate(self) -> None:
        """End the last part, and drop the white space around this place."""
        self._spaces, self._fresh = [], True

    def final(self, text: str) -> None:
        """Only text follows, so nothing has to wait any more."""
        self._final = True
        self._say(Text, text)

    def finish(self) -> None:
        """End the answer. White space at the end of its text is kept."""
        if self._kind is Text and self._spaces:
            self._put(Text("".join(self._spaces)))

    def knows(self, name: str) -> bool:
        """Whether a function of that name may be called."""
        return name in self._names

    def begin(self, name: str) -> None:
        self.separate()
        self._last = None
        self._calls += 1
        if self._counts:
            self._parts.append(CallStart(self._calls - 1, self._new_id(), name))

    def arguments(self, fragment: str) -> None:
        if self._counts and fragment:
            last = self._parts[-1] if self._parts else None
            if isinstance(last, CallArguments):
                self._parts[-1] = CallArguments(last.index, last.fragment + fragment)
            else:
                self._parts.append(CallArguments(self._calls - 1, fragment))

    def end(self) -> None:
        """The call is complete."""
        if self._counts:
            self._parts.append(CallEnd(self._calls - 1))

    @property
    def _counts(self) -> bool:
        return self._parallel or self._calls == 1

    def _say(self, kind: type[Text] | type[Thought], text: str) -> None:
        if kind is not self._kind:
            self.separate()
            self._kind = kind
        if self._fresh:
            text = text.lstrip()
        body = text if self._final else text.rstrip()
        if body:
            # Keeps two texts apart if thinking or a call stood between them.
            gap = _PARAGRAPH if self._fresh and self._last is kind else ""
            self._put(kind(gap + "".join(self._spaces) + body))
            self._spaces, self._fresh, self._last = [], False, kind
        if len(body) < len(text):
            self._spaces.append(text[len(body) :])

    def _put(self, part: Text | Thought) -> None:
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Text | Thought) and type(last) is type(part):
            self._parts[-1] = type(part)(last.text + part.text)
        else:
            self._parts.append(part)
