"""The parts of an answer as Anthropic's content blocks: the events that build them, or the finished blocks. Pure.

Blocks are never nested. Spaces alone make no block, because models put them around thinking and calls.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic_core import from_json

from services.gateway.dialects.joining import joined
from services.gateway.dialects.tool_calls import ANTHROPIC
from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text, Thought

Event = Mapping[str, Any]
_EMPTY: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class ContentEvents:
    """Turns parts into `content_block_start`, `_delta` and `_stop` events. Push all parts, then `finish` once.

    `signature` goes with every thinking block; without `shows_thinking` such a block holds only its signature.
    """

    def __init__(self, signature: str, *, shows_thinking: bool = True) -> None:
        self._signature = signature
        self._shows_thinking = shows_thinking
        self._index = -1
        self._open = ""  # the open block's type
        self._waiting = ""  # the type of the block that the held space would begin
        self._held = ""

    def push(self, parts: Iterable[Part]) -> list[Event]:
        events: list[Event] = []
        for part in parts:
            match part:
                case Text(text):
                    events += self._say("text", text)
                case Thought(text):
                    events += self._say("thinking", text)
                case CallStart(_, call_id, name):
                    block = {"type": "tool_use", "id": f"{ANTHROPIC}{call_id}", "name": name, "input": {}}
                    events += self._begin("tool_use", block)
                case CallArguments(_, fragment):
                    events.append(self._delta("input_json_delta", partial_json=fragment))
                case CallEnd():
                    events += self._end()
        return events

    def finish(self) -> list[Event]:
        """Ends the last block. An answer always has a block; an empty answer has an empty text block."""
        if self._index >= 0:
            return self._end()
        held = self._held if self._waiting == "text" else ""
        begun = self._begin("text", _EMPTY["text"])
        return [*begun, *([self._delta("text_delta", text=held)] if held else []), *self._end()]

    def _say(self, kind: str, text: str) -> list[Event]:
        events: list[Event] = []
        if kind != self._open:
            self._held = self._held + text if kind == self._waiting else text
            self._waiting = kind
            if not self._held.strip():
                return []
            text = self._held
            events += self._begin(kind, _EMPTY[kind])
        if kind == "text":
            events.append(self._delta("text_delta", text=text))
        elif self._shows_thinking:
            events.append(self._delta("thinking_delta", thinking=text))
        return events

    def _begin(self, kind: str, block: Mapping[str, Any]) -> list[Event]:
        ended = self._end()
        self._index += 1
        self._open = kind
        return [*ended, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _delta(self, kind: str, **fields: str) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": kind, **fields}}

    def _end(self) -> list[Event]:
        self._held = self._waiting = ""
        if not self._open:
            return []
        signed = self._open == "thinking"
        self._open = ""
        stop: Event = {"type": "content_block_stop", "index": self._index}
        return [self._delta("signature_delta", signature=self._signature), stop] if signed else [stop]


def blocks(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The blocks that a client puts together; a call that was cut off has those members that are complete."""
    pieces: list[list[Mapping[str, Any]]] = []
    for event in events:
        if event["type"] == "content_block_start":
            pieces.append([event["content_block"]])
        elif event["type"] == "content_block_delta":
            pieces[-1].append({name: value for name, value in event["delta"].items() if name != "type"})
    return [_block(joined(block)) for block in pieces]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    arguments = block.pop("partial_json", "")
    return block | {"input": from_json(arguments, allow_partial=True)} if arguments else block
