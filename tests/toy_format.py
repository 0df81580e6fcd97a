"""A made-up way to write thinking and calls: `<think>…</think>` and `<call NAME>{…}</call>`.

It lets dialects be tested with any parts on any vocabulary. Give it to a gateway with
`monkeypatch.setattr("services.gateway.models.served_model.detect", lambda *_: ToyFormat())`.
"""

import secrets
from collections.abc import Mapping, Sequence

from services.gateway.formats.format import Format
from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, PartParser, Text, Thought
from services.gateway.formats.thinking import ThinkingSpan
from services.gateway.requests.types import Reasoning, Tool, ToolChoice

_THINK, _THOUGHT, _CALL, _NAMED, _CALLED = "<think>", "</think>", "<call ", ">", "</call>"


class ToyParser:
    """Monotone: what may be the beginning of a mark is held back."""

    def __init__(self, opened: bool = False) -> None:
        self._state = "thought" if opened else "text"
        self._held = ""
        self._calls = 0

    def push(self, text: str) -> list[Part]:
        self._held += text
        parts: list[Part] = []
        while True:
            marks = {"text": (_THINK, _CALL), "thought": (_THOUGHT,), "name": (_NAMED,), "call": (_CALLED,)}
            found = [(self._held.find(mark), mark) for mark in marks[self._state] if mark in self._held]
            if not found:
                if self._state != "name":
                    kept = max(_overlap(self._held, mark) for mark in marks[self._state])
                    parts += self._give(len(self._held) - kept)
                return parts
            position, mark = min(found)
            if mark == _NAMED:
                parts.append(CallStart(self._calls, secrets.token_hex(12), self._held[:position]))
                self._held = self._held[position:]
            else:
                parts += self._give(position)
            self._held = self._held[len(mark) :]
            if mark == _CALLED:
                parts.append(CallEnd(self._calls))
                self._calls += 1
            self._state = {_THINK: "thought", _CALL: "name", _NAMED: "call"}.get(mark, "text")

    def finish(self) -> list[Part]:
        return [] if self._state in ("name", "call") else self._give(len(self._held))

    def _give(self, length: int) -> list[Part]:
        text, self._held = self._held[:length], self._held[length:]
        if not text:
            return []
        if self._state == "call":
            return [CallArguments(self._calls, text)]
        return [Text(text) if self._state == "text" else Thought(text)]


def _overlap(text: str, mark: str) -> int:
    """How many of the text's last characters may be the beginning of the mark."""
    return next((length for length in range(len(mark) - 1, 0, -1) if text.endswith(mark[:length])), 0)


class ToyFormat(Format):
    """Knows tools and thinking, and constrains nothing but a required output."""

    name = "toy"
    marks: tuple[str, ...] = ()
    span: ThinkingSpan | None = ThinkingSpan(_THINK, _THOUGHT, _THOUGHT)

    takes_tools = True

    def instructions(self, tools: Sequence[Tool]) -> str:
        return ""

    def call_id(self, id: str) -> str:
        return id

    def variables(self, reasoning: Reasoning) -> Mapping[str, object]:
        return {"reasoning_effort": reasoning.effort} if reasoning.effort else {}

    def budget(self, reasoning: Reasoning) -> int | None:
        return reasoning.budget

    def parser(self, tools: Sequence[Tool], choice: ToolChoice, *, opened: bool) -> PartParser:
        return ToyParser(opened)

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, *, output: bool, opened: bool) -> str:
        return "start: @output" if output else ""
