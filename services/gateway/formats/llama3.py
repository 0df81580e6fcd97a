"""Calls as Llama 3 writes them: a JSON object with `name` and `parameters` that is the whole answer, or follows
`<|python_tag|>`; several are separated by `;` (Meta's prompt format documents)."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from services.gateway.formats.call_grammar import call_object
from services.gateway.formats.json_call import JsonCall
from services.gateway.formats.lark import Lark
from services.gateway.formats.reader import Reader, Steps
from services.gateway.formats.sink import PartSink
from services.gateway.formats.syntax import CallSyntax
from services.gateway.requests.types import Tool

_TAG: Final = "<|python_tag|>"
_BARE: Final = r"\{\s*\"name\""  # an answer may be JSON, but one that begins like a call must be a call


class Llama3(CallSyntax):
    name = "llama3"
    openers = (_TAG,)
    bare = "{"
    marks = (_TAG,)

    def read(self, reader: Reader, sink: PartSink, tools: Mapping[str, Tool], opener: str) -> Steps[bool]:
        yield from reader.spaces()
        # Strict, so that the parser does not hold back a whole answer that only happens to be JSON.
        complete = yield from JsonCall(reader, sink, strict=True).read()
        if complete:
            yield from reader.spaces()
            yield from reader.skip(";")
        return complete

    def begins(self, text: str, tools: Mapping[str, Tool]) -> bool:
        return text.startswith(_TAG) or re.match(_BARE, text) is not None

    def calls(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> str:
        return _calls(lark, tools, parallel=parallel, words=True)

    def mixed(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool, beginning: str) -> str:
        calls = _calls(lark, tools, parallel=parallel, words=False)
        text = lark.text(_TAG, beginning=f"({'|'.join(filter(None, [beginning, _BARE]))})")
        return f"{text} | {calls} | {lark.through(_TAG, text)} {calls}"


def _calls(lark: Lark, tools: Sequence[Tool], *, parallel: bool, words: bool) -> str:
    one = lark.rule("call", " | ".join(call_object(tool, "parameters", words=words) for tool in tools))
    return f'{one} ("; " {one})*' if parallel else one
