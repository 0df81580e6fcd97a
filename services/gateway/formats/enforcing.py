"""Finds the tools whose arguments a grammar can enforce, and decides what happens to the others."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from services.gateway.errors import invalid
from services.gateway.formats.call_grammar import arguments
from services.gateway.formats.format import callable_tools
from services.gateway.formats.grammars import CODE, enforceable_formats, schema_fault
from services.gateway.formats.schema_faults import Fault, one_line
from services.gateway.requests.types import Tool, ToolChoice
from shared.law.grammar import GrammarError, refusal

ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
_WITHIN_S: Final = 3.0  # for all tools together, and for those that fail together once more one by one


def enforceable_tools(tools: Sequence[Tool], choice: ToolChoice) -> list[Tool]:
    """The tools that the choice leaves, with schemas that a grammar can be made of.

    If calls are optional, a tool whose schema cannot be enforced accepts any object; if calls are required, it raises a
    400 `ApiError`. A tool's own grammar that cannot be enforced raises it in any case. Takes as long as compiling the
    schemas. The dialects have checked that the choice names offered tools.
    """
    allowed = [_of_objects(tool) for tool in callable_tools(tools, choice).values()]
    if not allowed or not _reason(allowed):
        return allowed
    ends = time.monotonic() + _WITHIN_S
    return [tool if time.monotonic() < ends and not _reason([tool]) else _free(tool, choice) for tool in allowed]


def _of_objects(tool: Tool) -> Tool:
    """Makes the schema require an object, which arguments always are."""
    return replace(tool, parameters={**enforceable_formats(tool.parameters), **ANY_OBJECT})


def _free(tool: Tool, choice: ToolChoice) -> Tool:
    """The tool with any object for arguments."""
    if tool.grammar:
        why = one_line(_reason([tool]) or "it takes too long to compile")
        raise invalid("tools", f"'tools': the grammar of '{tool.name}' cannot be enforced: {why}.", CODE)
    if choice.mode != "required":
        return replace(tool, parameters=ANY_OBJECT)
    try:
        fault = schema_fault(tool.parameters)
    except GrammarError as error:
        fault = Fault((), one_line(str(error)))
    place, reason = (fault.path, fault.reason) if fault is not None else ((), "the schemas take too long to compile")
    where = ".".join(("parameters", *place))
    raise invalid("tools", f"'tools': a call of '{tool.name}' cannot be enforced: {where}: {reason}.", CODE)


def _reason(tools: Sequence[Tool]) -> str:
    """Why these cannot be compiled together; "" if they can."""
    try:
        return _refusal(" | ".join(arguments(tool) for tool in tools))
    except GrammarError as error:
        return str(error)


@lru_cache(256)
def _refusal(alternatives: str) -> str:
    return refusal(json.dumps({"grammars": [{"lark_grammar": f"start: {alternatives}"}]}), _WITHIN_S)
