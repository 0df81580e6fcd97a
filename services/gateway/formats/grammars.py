"""Grammars as the verifier takes them: llguidance's JSON form, a Lark grammar that may refer to a required output.

Each is compiled once before any header is sent. One that cannot be enforced becomes a 400 that names the field, and for
a JSON Schema the path and the keyword.
"""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from services.gateway.errors import invalid
from services.gateway.formats.schema_faults import Fault, find_fault, one_line
from services.gateway.requests.schemas import JsonSchema, mapped
from services.gateway.requests.types import Output
from shared.law.grammar import (
    COMPILE_S,
    FORMATS,
    GrammarError,
    Grammars,
    check_size,
    lark_of_gbnf,
    lark_of_regex,
    refusal,
)

# One line, spaced as in most training text: a small model that may choose fills pages with white space, and forced
# tokens cost no decode.
SPACING: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_REMEMBERED: Final = 64  # agents ask with the same tools and schemas again and again

CODE: Final = "invalid_grammar"


class Composer:
    """Composes grammars for one vocabulary and remembers which of them can be built."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._good: OrderedDict[str, None] = OrderedDict()
        # A thread of its own, because compiling takes seconds and must not delay tokenising.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="grammars")

    async def compose(self, lark: str, output: Output | None) -> str:
        """The grammar of a whole answer; in `lark`, `@output` stands for `output`. Raises a 400 `ApiError`."""
        grammar = await asyncio.get_running_loop().run_in_executor(self._threads, self._compose, lark, output)
        self._good[grammar] = None
        self._good.move_to_end(grammar)
        if len(self._good) > _REMEMBERED:
            self._good.popitem(last=False)
        return grammar

    def _compose(self, lark: str, output: Output | None) -> str:
        param = output.param if output is not None else "tools"
        try:
            own = _definition(output) if output is not None else None
            grammar = _composed(lark, own)
            if grammar not in self._good:
                fault = schema_fault(own["json_schema"]) if own is not None and "json_schema" in own else None
                if fault is not None:
                    raise invalid(param, f"{'.'.join((param, *fault.path))}: {fault.reason}.", CODE)
                self._grammars.compile(grammar)
        except GrammarError as error:
            raise invalid(param, f"'{param}' cannot be enforced: {one_line(str(error))}.", CODE) from None
        return grammar


def _composed(lark: str, output: Mapping[str, Any] | None) -> str:
    grammars: list[Mapping[str, Any]] = [{"lark_grammar": lark}]
    if output is not None:
        grammars.append({"name": "output", **output})
    return json.dumps({"grammars": grammars})


def _definition(output: Output) -> dict[str, Any]:
    """An output as a separate grammar, so that its names cannot clash."""
    if not isinstance(output.source, str):
        schema = enforceable_formats(output.source)
        own = schema.get("x-guidance")
        style = {**SPACING, **(own if isinstance(own, Mapping) else {})}
        return {"json_schema": {**schema, "x-guidance": style}}
    if output.kind == "regex":
        return {"lark_grammar": lark_of_regex(output.source)}
    return {"lark_grammar": lark_of_gbnf(output.source) if output.kind == "gbnf" else output.source}


def enforceable_formats(schema: JsonSchema) -> JsonSchema:
    """The schema without formats that no grammar knows: by JSON Schema's own words a format is only an annotation."""
    return mapped(schema, _without_unknown_format)


def _without_unknown_format(node: JsonSchema) -> JsonSchema:
    name = node.get("format")
    known = not isinstance(name, str) or name in FORMATS
    return node if known else {keyword: value for keyword, value in node.items() if keyword != "format"}


def schema_fault(schema: Mapping[str, Any]) -> Fault | None:
    """The part of a JSON Schema that cannot be enforced; None if all of it can. Blocks, for three seconds at most.

    Raises `GrammarError` for one that is too large or too complex.
    """
    check_size(json.dumps(schema))
    ends = time.monotonic() + COMPILE_S

    def refuse(part: Mapping[str, Any]) -> str:
        return refusal(_composed("start: @output", {"json_schema": part}), max(0.0, ends - time.monotonic()))

    return find_fault(schema, refuse)
