"""Says in words why a process ended, from its exit status and the last lines of its log. Pure."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.machine import signals

SILENT: Final = "it said nothing"
_ERRORS: Final = frozenset({"error", "critical"})
_DETAILS: Final = ("error", "reason", "note", "line")  # the fields of an event that say why, the best first
# What a full disk and exhausted memory read like in Python's exceptions and in llama.cpp's lines.
_DISK: Final = re.compile(r"\[Errno (?:28|122)\]|No space left on device|Disk quota exceeded")
_MEMORY: Final = re.compile(
    r"MemoryError|Cannot allocate memory|out of memory|OutOf\w*Memory|failed to allocate|unable to allocate",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the machine says about the time of a death."""

    disk_full: bool = False  # the disk that holds the log
    memory_killed: bool = False  # the kernel killed a process of this control group for memory


def said(lines: Iterable[str]) -> str:
    """The line that says why: the last that starts with `error:`, else the last event that is an error, in words, else
    the last one that is not an event; `SILENT` without any."""
    events, plain, errors = [], [], []
    for line in lines:
        fields = _fields(line)
        if fields is not None:
            events += [_in_words(fields)] if fields.get("level") in _ERRORS else []
        elif line.startswith("error:"):
            errors.append(line.removeprefix("error:").strip())
        elif not line.startswith("{"):  # an event that a full disk cut off says nothing in words
            plain.append(line.strip())
    return (errors or events or plain or [SILENT])[-1]


def explain(status: int, lines: Sequence[str], around: Surroundings = Surroundings()) -> str:
    """The cause in words; `status` is the exit status, negative for a signal."""
    last = said(lines)
    parts = [_how(status, around)]
    if _DISK.search(last):
        parts.append("a disk is full")
    elif _MEMORY.search(last):
        parts.append("memory ran out")
    if last != SILENT:
        parts.append(last)
    cause = ": ".join(parts)
    return f"{cause}; the disk that holds its log is full, so it may have said more" if around.disk_full else cause


def _how(status: int, around: Surroundings) -> str:
    number = -status if status < 0 else status - 128  # shells and container runtimes report signals so
    if number <= 0 or not signals.is_known(number):
        return f"exit {status}"
    if around.memory_killed and signals.is_kill(number):
        return f"{signals.in_words(number)} by the kernel, because memory ran out"
    cause = signals.cause(number)
    return f"{signals.in_words(number)}: {cause}" if cause else signals.in_words(number)


def _fields(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and "event" in value else None


def _in_words(fields: dict[str, Any]) -> str:
    """`service failed (OSError: [Errno 28] No space left on device)` for an event with that exception."""
    event = str(fields["event"]).replace("_", " ")
    exception = fields.get("exception")
    types = [line for line in exception if isinstance(line, str)] if isinstance(exception, list) else []
    details = types[:1] or [str(fields[name]) for name in _DETAILS if fields.get(name)][:1]
    return f"{event} ({details[0]})" if details else event
