"""The page of log events: each that a process may write, at which level and with which fields."""

import ast
from collections import defaultdict
from typing import Final

from reference.markdown import code, codes, page, table
from reference.source import Call, calls

_LEVELS: Final = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}


def text() -> str:
    """The page."""
    levels: defaultdict[str, set[str]] = defaultdict(set)
    fields: defaultdict[str, dict[str, None]] = defaultdict(dict)  # ordered, without repetitions
    files: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for call in calls():
        event = _event(call)
        if event:
            levels[event].add(_LEVELS.get(call.name, "as the library's"))
            fields[event] |= dict.fromkeys(_fields(call))
            files[event][call.file] = None
    rows = [
        (code(event), ", ".join(sorted(levels[event])), codes(fields[event]), codes(files[event]))
        for event in sorted(levels)
    ]
    return page(
        "Log events",
        "Each process writes them to standard error: readable on a terminal, elsewhere one JSON object per line"
        " with `event`, `level`, `timestamp`, `service` and the fields below. Prompts, answers and keys are in none"
        " of them.",
        table(("event", "level", "fields", "written in"), rows),
    )


def _event(call: Call) -> str:
    """The event that a call logs; empty if it logs none."""
    function = call.node.func
    if not (isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "logger"):
        return ""
    if call.name not in (*_LEVELS, "log"):
        return ""
    return call.argument(1 if call.name == "log" else 0)


def _fields(call: Call) -> list[str]:
    """Their names; `…` for those that are put together elsewhere."""
    names = [keyword.arg or "…" for keyword in call.node.keywords]
    traced = call.name == "exception" or "exc_info" in names
    return [name for name in names if name != "exc_info"] + (["exception"] if traced else [])
