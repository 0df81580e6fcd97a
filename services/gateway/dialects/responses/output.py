"""The items of an answer, and their events: each item is added, grows by deltas and is done. Pure.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from services.gateway.dialects.responses.custom_tools import InputText
from services.gateway.dialects.responses.items import seal
from services.gateway.dialects.responses.tools import DeclaredTool
from services.gateway.dialects.tokens import TextLogprobs
from services.gateway.dialects.tool_calls import OPENAI
from services.gateway.formats.parts import CallArguments, CallEnd, CallStart, Part, Text, Thought

Told = dict[str, Any]  # an event: `type` and what belongs to it; its frame has a number too

_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
# Of each kind of call: the field of its arguments, and the name of the events that bring them.
_ARGUMENTS: Final = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}


class _Open:
    """The item that still grows."""

    def __init__(self, response: str, index: int, kind: str, **more: object) -> None:
        self.kind = kind
        self.input = InputText()  # of a custom tool
        self.index = index
        self.pieces: list[str] = []
        self.logprobs: list[dict[str, Any]] = []
        # The id names the response, so that a reference to the item finds it.
        self.head: dict[str, Any] = {"id": f"{_PREFIXES[kind]}_{response}_{index}", "type": kind, **more}

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def event(self, name: str, *, content: bool = False, **more: object) -> Told:
        place = {"item_id": self.head["id"], "output_index": self.index, **({"content_index": 0} if content else {})}
        return {"type": f"response.{name}", **place, **more}

    def item_event(self, name: str, item: Mapping[str, object]) -> Told:
        return {"type": f"response.output_item.{name}", "output_index": self.index, "item": item}


class OutputItems:
    """One answer's items. Push its parts in order, then `finish` once.

    Text is a message, thinking a reasoning item, a call a function_call or a custom_tool_call; `origins` gives the tool
    as the client knows it. A call that was cut off gets no done events, because clients make a call when they
    see them; its item is marked as incomplete.
    """

    def __init__(
        self,
        response: str,
        origins: Mapping[str, DeclaredTool],
        *,
        sealed: bool = False,
        logprobs: TextLogprobs | None = None,
    ) -> None:
        self._response = response
        self._origins = origins
        self._sealed = sealed
        self._logprobs = logprobs
        self._done: list[dict[str, Any]] = []
        self._open: _Open | None = None
        self._messages = 0

    def items(self) -> list[dict[str, Any]]:
        """The output so far; an item that still grows is incomplete."""
        return self._done if self._open is None else [*self._done, self._item(self._open, "incomplete")]

    def push(self, parts: Iterable[Part]) -> list[Told]:
        """The events of these parts."""
        events: list[Told] = []
        for part in parts:
            match part:
                case Text(text):
                    events += self._grow("message", "output_text", text)
                case Thought(text):
                    events += self._grow("reasoning", "reasoning_text", text)
                case CallStart():
                    events += [*self._close("completed"), *self._begin_call(part)]
                case CallArguments(_, fragment):
                    events += self._argue(fragment)
                case CallEnd():
                    events += self._close("completed")
        return events

    def finish(self, *, cut: bool) -> list[Told]:
        """The last events; `cut`: the answer reached its limit. An empty answer is an empty message."""
        begun: list[Told] = []
        if not self._done and self._open is None:
            begun = self._begin("message", "output_text")
        if self._open is not None and self._open.kind in _ARGUMENTS:
            self._done = self.items()
            self._open = None
        return [*begun, *self._close("incomplete" if cut else "completed")]

    def _grow(self, kind: str, name: str, text: str) -> list[Told]:
        events: list[Told] = []
        if self._open is None or self._open.kind != kind:
            events = [*self._close("completed"), *self._begin(kind, name)]
        assert self._open is not None
        self._open.pieces.append(text)
        more = {"logprobs": self._take_logprobs(self._open)} if kind == "message" else {}
        return [*events, self._open.event(f"{name}.delta", content=True, delta=text, **more)]

    def _begin(self, kind: str, name: str) -> list[Told]:
        role = {"role": "assistant"} if kind == "message" else {}
        self._open = opened = _Open(self._response, len(self._done), kind, **role)
        item = {**opened.head, "status": "in_progress", "content": []}
        if kind == "reasoning":
            item["summary"] = []
        return [
            opened.item_event("added", item),
            opened.event("content_part.added", content=True, part=_part(name, "", [])),
        ]

    def _begin_call(self, start: CallStart) -> list[Told]:
        origin = self._origins.get(start.name, DeclaredTool(None, start.name))
        scope = {"namespace": origin.namespace} if origin.namespace else {}
        kind = "custom_tool_call" if origin.kind == "custom" else "function_call"
        self._open = opened = _Open(
            self._response, len(self._done), kind, call_id=OPENAI + start.id, name=origin.name, **scope
        )
        return [opened.item_event("added", {**opened.head, _ARGUMENTS[kind][0]: "", "status": "in_progress"})]

    def _argue(self, fragment: str) -> list[Told]:
        if self._open is None:
            return []
        if self._open.kind == "custom_tool_call":
            fragment = self._open.input.push(fragment)
        if not fragment:
            return []
        self._open.pieces.append(fragment)
        return [self._open.event(f"{_ARGUMENTS[self._open.kind][1]}.delta", delta=fragment)]

    def _close(self, status: str) -> list[Told]:
        opened, self._open = self._open, None
        if opened is None:
            return []
        if opened.kind == "message":
            self._take_logprobs(opened)
            self._messages += 1
        item = self._item(opened, status)
        self._done.append(item)
        return [*self._last(opened), opened.item_event("done", item)]

    def _last(self, opened: _Open) -> list[Told]:
        text = opened.text
        if opened.kind in _ARGUMENTS:
            field, event = _ARGUMENTS[opened.kind]
            return [{**opened.event(f"{event}.done"), field: text}]
        name = "output_text" if opened.kind == "message" else "reasoning_text"
        more = {"logprobs": opened.logprobs} if opened.kind == "message" else {}
        return [
            opened.event(f"{name}.done", content=True, text=text, **more),
            opened.event("content_part.done", content=True, part=_part(name, text, opened.logprobs)),
        ]

    def _item(self, opened: _Open, status: str) -> dict[str, Any]:
        item = {**opened.head, "status": status}
        text = opened.text
        if opened.kind in _ARGUMENTS:
            return {**item, _ARGUMENTS[opened.kind][0]: text}
        if opened.kind == "message":
            return {**item, "content": [_part("output_text", text, opened.logprobs)]}
        sealed = {"encrypted_content": seal(text)} if self._sealed else {}
        return {**item, "summary": [], "content": [_part("reasoning_text", text, [])], **sealed}

    def _take_logprobs(self, opened: _Open) -> list[dict[str, Any]]:
        new = [] if self._logprobs is None else self._logprobs.take(self._messages)
        opened.logprobs += new
        return new


def _part(name: str, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    if name == "reasoning_text":
        return {"type": name, "text": text}
    return {"type": name, "text": text, "annotations": [], "logprobs": logprobs}
