"""The tool calls of one answer, put together as they come in parts."""

from collections.abc import Sequence

from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text
from services.gateway.generation.preparation import Reading
from services.gateway.storage.kept_turns import KeptTurn, behind


class ToolCall:
    """A call as far as it came."""

    def __init__(self, start: CallStart) -> None:
        self.id = start.id
        self.name = start.name
        self.complete = False
        self.fragments: list[str] = []

    @property
    def arguments(self) -> str:
        """Their JSON text, once the call is complete."""
        return "".join(self.fragments)


class Calls:
    """Take every part of one choice, in order."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self._text: list[str] = []

    def take(self, part: Part) -> None:
        match part:
            case CallStart():
                self.calls.append(ToolCall(part))
            case CallArguments(index, fragment):
                self.calls[index].fragments.append(fragment)
            case CallEnd(index):
                self.calls[index].complete = True
            case Text(text):
                self._text.append(text)

    @property
    def complete(self) -> bool:
        """Whether there are calls, and none was cut off."""
        return bool(self.calls) and all(call.complete for call in self.calls)

    def turn(self, output: Sequence[int], reading: Reading) -> KeptTurn | None:
        """What to keep of this answer; None if its tokens cannot be told from the thinking."""
        tokens = behind(output, reading.piece, reading.thinking_end)
        calls = tuple((call.name, call.arguments) for call in self.calls)
        return KeptTurn(tokens, "".join(self._text), calls) if tokens else None
