"""Calls as Mistral's models write them: `[TOOL_CALLS]` and a list of JSON objects, or since tokenizer 11
`[TOOL_CALLS]name[ARGS]{…}` once per call (github.com/mistralai/mistral-common)."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from services.gateway.formats.call_grammar import arguments, call_object
from services.gateway.formats.json_call import JsonCall, pass_object
from services.gateway.formats.lark import Lark, literal
from services.gateway.formats.reader import Reader, Steps
from services.gateway.formats.sink import PartSink
from services.gateway.formats.syntax import CallSyntax
from services.gateway.requests.types import Tool

_OPEN: Final = "[TOOL_CALLS]"
_ARGUMENTS: Final = "[ARGS]"
_ID: Final = "[CALL_ID]"
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/-]+")


class Mistral(CallSyntax):
    """`lists`: the model writes the older form. The parser reads both forms."""

    name = "mistral"
    openers = (_OPEN,)
    marks = (_OPEN, _ARGUMENTS, _ID)

    def __init__(self, *, lists: bool) -> None:
        self.lists = lists

    def body(self, lark: Lark, tools: Sequence[Tool]) -> str:
        named = (f"{literal(tool.name)} {lark.mark(_ARGUMENTS)} {arguments(tool)}" for tool in tools)
        return lark.rule("named", " | ".join(named))

    def calls(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> str:
        if not self.lists:
            return super().calls(lark, tools, parallel=parallel)
        return f"{lark.mark(_OPEN)} {self._list(lark, tools, parallel=parallel)}"

    def mixed(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool, beginning: str) -> str:
        if not self.lists:
            return super().mixed(lark, tools, parallel=parallel, beginning=beginning)
        text = lark.text(_OPEN, beginning=beginning)
        return f"{text} | {lark.through(_OPEN, text)} {self._list(lark, tools, parallel=parallel)}"

    def _list(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> str:
        """All calls are in one list, which ends the answer."""
        one = lark.rule("object", " | ".join(call_object(tool, "arguments") for tool in tools))
        return f'"[" {one} (", " {one})* "]"' if parallel else f'"[" {one} "]"'

    def begins(self, text: str, tools: Mapping[str, Tool]) -> bool:
        rest = text.removeprefix(_OPEN).lstrip()
        return rest[:1] in ("[", "{", ",") or any(name.startswith(rest) or rest.startswith(name) for name in tools)

    def read(self, reader: Reader, sink: PartSink, tools: Mapping[str, Tool], opener: str) -> Steps[bool]:
        yield from reader.spaces()
        first = yield from reader.next_is("[", "{")
        if first == "[":
            return (yield from _list(reader, sink))
        if first == "{":
            return (yield from JsonCall(reader, sink).read())
        return (yield from _named(reader, sink))


def _list(reader: Reader, sink: PartSink) -> Steps[bool]:
    mark = yield from reader.skip("[")
    while mark and mark != "]":
        yield from reader.spaces()
        if not (yield from JsonCall(reader, sink).read()):
            return False
        yield from reader.spaces()
        mark = yield from reader.skip(",", "]")
        if mark == ",":
            reader.hold(mark)
    return mark == "]"


def _named(reader: Reader, sink: PartSink) -> Steps[bool]:
    name = yield from reader.run(_WORD)
    if not sink.knows(name):
        return False
    yield from reader.spaces()
    if (yield from reader.skip(_ID)):
        yield from reader.run(_WORD)
    yield from reader.skip(_ARGUMENTS)
    yield from reader.spaces()
    if not (yield from reader.next_is("{")):
        return False
    reader.release()
    sink.begin(name)
    if not (yield from pass_object(reader, sink.arguments)):
        return False
    sink.end()
    return True
