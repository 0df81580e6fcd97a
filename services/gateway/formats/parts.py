"""What an answer consists of once its text is understood: plain text, thinking and tool calls, in pieces. Pure.

A parser is monotone: it never takes back output, and holds back text that is not yet certain. How the text was cut into
pushes decides only where one part ends and the next of the same kind begins.
"""

from collections.abc import Iterable
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


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same parts, with neighbours of one kind joined."""
    result: list[Part] = []
    for part in parts:
        match result[-1] if result else None, part:
            case Text(before), Text(text):
                result[-1] = Text(before + text)
            case Thought(before), Thought(text):
                result[-1] = Thought(before + text)
            case CallArguments(index, before), CallArguments(same, text) if index == same:
                result[-1] = CallArguments(index, before + text)
            case _:
                result.append(part)
    return tuple(result)


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
