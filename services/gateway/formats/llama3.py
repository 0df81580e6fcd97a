"""Calls as Llama 3 writes them: a JSON object with `name` and `parameters` that is the whole answer, or follows
`<|python_tag|>`; several are separated by `;` (Meta's prompt format documents)."""

from collections.abc import Mapping, Sequence
from typing import Final

from services.gateway.formats.json_call import JsonCall
from services.gateway.formats.lark import Lark, call_object
from services.gateway.formats.reader import Reader, Steps
from services.gateway.formats.sink import Sink
from services.gateway.requests import Tool

_TAG: Final = "<|python_tag|>"


class Llama3:
    name = "llama3"
    openers = (_TAG,)
    bare = "{"
    marks = (_TAG,)

    def read(self, reader: Reader, sink: Sink, tools: Mapping[str, Tool], opener: str) -> Steps[bool]:
        yield from reader.spaces()
        # An answer that only happens to be JSON must not be withheld to its end, hence strict.
        complete = yield from JsonCall(reader, sink, strict=True).read()
        if complete:
            yield from reader.spaces()
            yield from reader.skip(";")
        return complete

    def calls(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> str:
        one = lark.rule("call", " | ".join(call_object(tool, "parameters") for tool in tools))
        if lark.is_token(_TAG):
            one = f"{lark.mark(_TAG)}? {one}"
        return f'{one} ("; " {one})*' if parallel else one

    def mixed(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool, begin: str) -> str:
        calls = self.calls(lark, tools, parallel=parallel)
        plain = lark.text_without("PLAIN", r"\{\s*\"name\"")
        if lark.is_token(_TAG):
            return f"{plain} | {plain}? {calls}"
        return f"{plain} | {calls}"
