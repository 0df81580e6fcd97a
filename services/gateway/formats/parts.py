"""What an answer consists of once its text is understood: plain text, thinking and tool calls, in pieces. Pure.

A parser is monotone: it never takes back output, and holds back text that is not yet certain. How the text was cut into
pushes decides only where one part ends and the next of the same kind begins.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from msgspec import Struct


class Text(Struct, frozen=True):
    """Text of the answer itself."""

    text: str


class Thought(Struct, frozen=True):
    """Text of the model's thinking."""

    text: str


class CallStart(Struct, frozen=True):
    """Tool call number `index` of the answer begins. `id` is random hexadecimal; dialects put a prefix before it."""

    index: int
    id: str
    name: str


class CallArguments(Struct, frozen=True):
    """A piece of a call's arguments; all pieces of a call that ended are the JSON text of one object."""

    index: int
    fragment: str


class CallEnd(Struct, frozen=True):
    """The call is complete. A call without its end was cut off and must not be made."""

    index: int


Part = Text | Thought | CallStart | CallArguments | CallEnd


def merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The same parts, with neighbours of one kind joined."""
    if len(parts) < 2:
        return tuple(parts)
    result: list[Part] = []
    for _, neighbours in groupby(parts, key=_kind):
        run = list(neighbours)
        match run[0]:
            case Text():
                result.append(Text("".join(part.text for part in run if isinstance(part, Text))))
            case Thought():
                result.append(Thought("".join(part.text for part in run if isinstance(part, Thought))))
            case CallArguments(index):
                fragments = (part.fragment for part in run if isinstance(part, CallArguments))
                result.append(CallArguments(index, "".join(fragments)))
            case _:
                result += run
    return tuple(result)


def _kind(part: Part) -> tuple[type, int]:
    return type(part), part.index if isinstance(part, CallArguments) else 0


class PartParser(Protocol):
    """Turns the text of one answer into parts. Push until the text ends, then `finish` once."""

    def push(self, text: str) -> list[Part]: ...
    def finish(self) -> list[Part]: ...


class PlainParser:
    """Makes all text one kind of part."""

    def push(self, text: str) -> list[Part]:
        return [Text(text)] if text else []

    def finish(self) -> list[Part]:
        return []
