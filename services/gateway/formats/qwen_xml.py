"""Calls as Qwen3-Coder and Seed-OSS write them: every parameter in a tag of its own, its value as bare text.

`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`; the value stands between line
breaks of its own, and nothing in it is escaped.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.gateway.formats.call_grammar import nested
from services.gateway.formats.lark import Lark, json_value, literal
from services.gateway.formats.quoted_lark import spans_lines
from services.gateway.formats.reader import Reader, SoughtMarks, Steps
from services.gateway.formats.schema_types import kinds, typed
from services.gateway.formats.sink import PartSink
from services.gateway.formats.syntax import CallSyntax
from services.gateway.requests.types import Tool

_FUNCTION: Final = "<function="
_PARAMETER: Final = "<parameter="
_END: Final = "</parameter>"
_END_FUNCTION: Final = "</function>"
_LINE: Final = literal("\n")
_TAG_END: Final = SoughtMarks((">", "\n"))
_VALUE_END: Final = SoughtMarks((_END,))


class QwenXml(CallSyntax):
    """`prefix` stands before the tag's name: Seed-OSS has `seed:`."""

    separator = _LINE

    def __init__(self, prefix: str = "") -> None:
        self.name = "qwen-xml" if not prefix else f"{prefix.rstrip(':')}-xml"
        self.open, self.close = f"<{prefix}tool_call>", f"</{prefix}tool_call>"
        self.openers = (self.open, _FUNCTION)  # models sometimes forget the outer tag
        self.marks = (self.open, self.close)

    def body(self, lark: Lark, tools: Sequence[Tool]) -> str:
        function = lark.rule("function", " | ".join(_function(lark, tool) for tool in tools))
        return f"{_LINE} {function} {lark.mark(self.close)}"

    def read(self, reader: Reader, sink: PartSink, tools: Mapping[str, Tool], opener: str) -> Steps[bool]:
        if opener != _FUNCTION:
            yield from reader.spaces()
            if not (yield from reader.skip(_FUNCTION)):
                return False
        name = yield from _tag(reader)
        if not sink.knows(name):
            return False
        yield from reader.spaces()
        if not (yield from reader.next_is(_PARAMETER, _END_FUNCTION)):
            yield from reader.skip(_PARAMETER, _END_FUNCTION)  # one that the end of the text cut off
            return False
        reader.release()
        sink.begin(name)
        complete = yield from self._parameters(reader, sink, tools[name])
        if complete:
            yield from reader.spaces()
            yield from reader.skip(self.close)
        return complete

    def _parameters(self, reader: Reader, sink: PartSink, tool: Tool) -> Steps[bool]:
        opening = "{"
        while True:
            yield from reader.spaces()
            # Models sometimes forget the function's end tag.
            if (yield from reader.skip(_END_FUNCTION)) or (yield from reader.next_is(self.close)):
                sink.arguments("{}" if opening == "{" else "}")
                sink.end()
                return True
            if not (yield from reader.skip(_PARAMETER)):
                return False
            key = yield from _tag(reader)
            if not key:
                return False
            sink.arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
            if not (yield from self._value(reader, sink, kinds(tool.parameters, key))):
                return False
            opening = ", "

    def _value(self, reader: Reader, sink: PartSink, allowed: frozenset[str]) -> Steps[bool]:
        """Pass on one value; False if the text ended inside it."""
        value: _Value = _Streamed(sink) if allowed == {"string"} else _Whole(sink, allowed)
        while (yield from reader.until(_VALUE_END, value.add)):
            spaces = yield from reader.spaces()
            # A value may hold the end mark as text. The real end mark is followed by the next part of a call.
            if reader.exhausted or (yield from reader.next_is(_PARAMETER, _END_FUNCTION, self.close)):
                value.end()
                return True
            value.add(_END + spaces)
        return False


def _function(lark: Lark, tool: Tool) -> str:
    schema: Mapping[str, Any] = tool.parameters
    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    names = [*properties, *(name for name in required if name not in properties)]
    parameters = [f"{_parameter(lark, tool, name)}{'' if name in required else '?'}" for name in names]
    if not names and schema.get("additionalProperties") is not False:
        parameters = [f"(/<parameter=[^<>\\s]+>\\n/ {lark.through(_END)} {_LINE})*"]
    return " ".join([literal(f"<function={tool.name}>\n"), *parameters, literal("</function>\n")])


def _parameter(lark: Lark, tool: Tool, name: str) -> str:
    return f"({literal(f'<parameter={name}>' + chr(10))} {_text(lark, tool, name)} {_LINE})"


def _text(lark: Lark, tool: Tool, name: str) -> str:
    """A value and its end.

    Of a string's schema, bare text can keep only a choice between fixed values. A grammar holds if none of its words
    can run over the end mark, which stands on a line of its own.
    """
    schema: Mapping[str, Any] = tool.parameters
    own = (schema.get("properties") or {}).get(name)
    if isinstance(own, Mapping) and "string" not in kinds(schema, name):
        definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        return f"{json_value({**definitions, **own})} {literal(chr(10) + _END)}"
    if tool.grammar and not spans_lines(tool.grammar):
        return f"{nested(tool.grammar)} {literal(chr(10) + _END)}"
    values = own.get("enum") if isinstance(own, Mapping) else None
    if values and all(isinstance(value, str) and _END not in value for value in values):
        return f"({' | '.join(map(literal, values))}) {literal(chr(10) + _END)}"
    return lark.through(_END)


def _tag(reader: Reader) -> Steps[str]:
    """The rest of a tag up to its end; "" if it does not end."""
    out: list[str] = []
    return "".join(out).strip() if (yield from reader.until(_TAG_END, out.append)) == ">" else ""


class _Whole:
    """A value whose JSON is known only once it is complete."""

    def __init__(self, sink: PartSink, allowed: frozenset[str]) -> None:
        self._sink = sink
        self._allowed = allowed
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        self._texts.append(text)

    def end(self) -> None:
        value = "".join(self._texts).removeprefix("\n").removesuffix("\n")
        self._sink.arguments(typed(value, self._allowed))


class _Streamed:
    """A string, passed on as it comes. The line breaks next to the tags do not belong to it."""

    def __init__(self, sink: PartSink) -> None:
        self._sink = sink
        self._first = True
        self._break = ""
        sink.arguments('"')

    def add(self, text: str) -> None:
        if self._first and text:
            text, self._first = text.removeprefix("\n"), False
        text = self._break + text
        body = text.removesuffix("\n")
        self._break = text[len(body) :]
        self._sink.arguments(json.dumps(body, ensure_ascii=False)[1:-1])

    def end(self) -> None:
        self._sink.arguments('"')


_Value = _Whole | _Streamed
