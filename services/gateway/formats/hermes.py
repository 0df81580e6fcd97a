"""Calls as NousResearch's Hermes models and Qwen write them: a JSON object with `name` and `arguments` in
`<tool_call>` tags (github.com/NousResearch/Hermes-Function-Calling)."""

from collections.abc import Mapping, Sequence
from typing import Final

from services.gateway.formats.call_grammar import call_object
from services.gateway.formats.json_call import JsonCall
from services.gateway.formats.lark import Lark, literal
from services.gateway.formats.reader import Reader, Steps
from services.gateway.formats.sink import PartSink
from services.gateway.formats.syntax import CallSyntax
from services.gateway.requests.types import Tool

_OPEN: Final = "<tool_call>"
_CLOSE: Final = "</tool_call>"
_LINE: Final = literal("\n")


class Hermes(CallSyntax):
    name = "hermes"
    openers = (_OPEN,)
    marks = (_OPEN, _CLOSE)
    separator = _LINE

    def read(self, reader: Reader, sink: PartSink, tools: Mapping[str, Tool], opener: str) -> Steps[bool]:
        yield from reader.spaces()
        complete = yield from JsonCall(reader, sink, close=_CLOSE).read()
        if complete:
            yield from reader.spaces()
            yield from reader.skip(_CLOSE)
        return complete

    def body(self, lark: Lark, tools: Sequence[Tool]) -> str:
        call = lark.rule("object", " | ".join(call_object(tool, "arguments") for tool in tools))
        return f"{_LINE} {call} {_LINE} {lark.mark(_CLOSE)}"
