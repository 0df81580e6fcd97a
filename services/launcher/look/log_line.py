"""One line of a process's log: its time, level and fields, and its form on a terminal. Pure."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from services.launcher.look.figures import plain
from shared.settings.options import Level

SEVERITY: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_STYLES: Final = {"debug": "dim", "info": "green", "warning": "yellow", "error": "bold red", "critical": "bold red"}
_TOLD: Final = frozenset({"timestamp", "level", "service", "event", "exception"})
# How Valkey and Redis begin a line, in local time: "1234:M 29 Nov 2026 22:33:18.123 * Ready"; and in a signal handler.
_VALKEY: Final = re.compile(r"\d+:[A-Z] (\d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3}) ([.\-*#]) ")
_VALKEY_SIGNAL: Final = re.compile(r"\d+:signal-handler \((\d{1,12})\) ")
_VALKEY_LEVELS: Final = {".": "debug", "-": "debug", "*": "info", "#": "warning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of `process`, at `moment` in unix seconds; `fields` where it is JSON of ours, else None."""

    process: str
    raw: str
    moment: float
    level: str
    fields: dict[str, Any] | None

    def is_at_least(self, level: Level) -> bool:
        """Whether its level is `level` or worse."""
        return SEVERITY[self.level] >= SEVERITY[level.value]


def read(process: str, raw: str, before: float) -> LogLine:
    """Parse `raw`.

    `before` is the time of the line before it, for a line without a time. A line that is not our JSON counts as
    information, or as an error if it says so.
    """
    fields = _fields(raw)
    if fields is not None:
        level = fields.get("level")
        moment = _moment(fields.get("timestamp"))
        return LogLine(
            process=process,
            raw=raw,
            moment=before if moment is None else moment,
            level=level if isinstance(level, str) and level in SEVERITY else "info",
            fields=fields,
        )
    valkey = _VALKEY.match(raw)
    moment = _valkey_moment(raw, valkey)
    level = _VALKEY_LEVELS[valkey[2]] if valkey else "error" if raw.lower().startswith("error") else "info"
    return LogLine(process=process, raw=raw, moment=before if moment is None else moment, level=level, fields=None)


def pretty(line: LogLine, width: int) -> Text:
    """For people: local time, level, process in `width` columns, event, and its fields; other lines unchanged."""
    clock = datetime.fromtimestamp(line.moment).strftime("%H:%M:%S")
    text = Text.assemble((clock, "dim"), " ", (f"{line.level:<8}", _STYLES[line.level]), " ")
    text.append(f"{line.process:<{width}}  ", style="cyan")
    if line.fields is None:
        return text.append(plain(line.raw))
    text.append(plain(str(line.fields["event"])), style="bold")
    for name, value in line.fields.items():
        if name not in _TOLD:
            text.append(f" {plain(name)}=", style="dim").append(plain(_value(value)))
    for told in _list(line.fields.get("exception")):
        text.append(f"\n    {plain(str(told))}", style="red")
    return text


def as_json(line: LogLine) -> str:
    """For programs: the line's own object with `process` first, or one with `process` and `line`."""
    return json.dumps({"process": line.process, **(line.fields or {"line": line.raw})}, ensure_ascii=False)


def _fields(raw: str) -> dict[str, Any] | None:
    if not raw.startswith("{"):
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and "event" in value else None


def _moment(timestamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _valkey_moment(raw: str, match: re.Match[str] | None) -> float | None:
    try:
        if match:
            return datetime.strptime(match[1], "%d %b %Y %H:%M:%S.%f").timestamp()
        signal = _VALKEY_SIGNAL.match(raw)
        return float(signal[1]) if signal else None
    except (ValueError, OverflowError, OSError):  # a month in another language
        return None


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False) if " " in text and isinstance(value, str) else text


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else str(value).splitlines()
