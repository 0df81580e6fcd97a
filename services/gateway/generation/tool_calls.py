"""The tool calls of one answer as they come in parts: their number, whether all are complete, and their content."""

from collections.abc import Sequence

from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text
from services.gateway.generation.preparation import Reading
from services.gateway.storage.kept_turns import KeptTurn, behind


class Calls:
    """Take every part of one choice, in order."""

    def __init__(self) -> None:
        self.first = ""  # the first call's id
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        self._ended = 0
        self._text: list[str] = []

    def take(self, part: Part) -> None:
        match part:
            case CallStart():
                self.first = self.first or part.id
                self._names.append(part.name)
                self._arguments.append([])
            case CallArguments():
                self._arguments[part.index].append(part.fragment)
            case CallEnd():
                self._ended += 1
            case Text():
                self._text.append(part.text)

    @property
    def made(self) -> bool:
        """Whether any call is complete."""
        return self._ended > 0

    @property
    def complete(self) -> bool:
        """Whether there are calls, and none was cut off."""
        return 0 < len(self._names) == self._ended

    def turn(self, output: Sequence[int], reading: Reading) -> KeptTurn | None:
        """What to keep of this answer; None if its tokens cannot be told from the thinking."""
        tokens = behind(output, reading.piece, reading.thinking_end)
        calls = zip(self._names, map("".join, self._arguments), strict=True)
        return KeptTurn(tokens, "".join(self._text), tuple(calls)) if tokens else None
