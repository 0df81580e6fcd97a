"""One frame of `draftmesh top`, from the fleet's facts, for a terminal of a given size. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec.structs import asdict
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from services.launcher.look.figures import UNKNOWN, age, plain, shown, sparkline
from services.launcher.look.status import NOBODY
from shared.fleet.fleet_values import FleetStatus, ProcessStatus, RunningRequest

_MEDIUM, _WIDE = 90, 130  # least widths of a terminal for columns of these ranks
_FEWEST_LINES: Final = 3  # of a table that does not fit: title, headings, one row


Row = Mapping[str, Any]  # what a line of a table shows


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """What is shown: the fleet, and its tokens per second at the latest readings.

    `trouble` says why the values are old; empty if they are current. `now` is in unix seconds.
    """

    fleet: FleetStatus
    speeds: Sequence[float]
    now: float
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table: key of the row, heading, and the least width of a terminal that shows it."""

    key: str
    heading: str
    least: int = 0
    text: bool = False  # left-aligned, and shortened first


_PROCESSES: Final = (
    _Column("name", "process", text=True),
    _Column("device", "device", _MEDIUM, text=True),
    _Column("model", "model", text=True),
    _Column("load", "load", text=True),
    _Column("tokens_per_second", "tok/s"),
    _Column("age", "since", _MEDIUM),
)
_DRAFTERS: Final = (
    _Column("name", "drafter", text=True),
    _Column("model", "model", _MEDIUM, text=True),
    _Column("acceptance_rate", "accepted"),
    _Column("tokens_per_round", "tok/round"),
    _Column("adds", "adds/round"),
    _Column("added", "added"),
    _Column("drafted", "drafted", _MEDIUM),
    _Column("stale", "stale", _WIDE),
    _Column("round_trip_ms", "round trip ms", _WIDE),
    _Column("tokens_per_second", "tok/s"),
    _Column("refused", "refused", _WIDE, text=True),
)
_REQUESTS: Final = (
    _Column("request_id", "request", text=True),
    _Column("offset", "tokens"),
    _Column("tokens_per_second", "tok/s"),
    _Column("tokens_per_round", "tok/round"),
    _Column("guessed_by", "drafters", _WIDE, text=True),
    _Column("reason", "why it is not speculating", text=True),
)


def total_speed(fleet: FleetStatus) -> float:
    """Tokens per second of all verifiers together."""
    return sum(row.tokens_per_second for row in fleet.verifiers)


def render(view: TopView, width: int, height: int) -> RenderableType:
    """At most `height` lines of at most `width` columns; counts the rows that do not fit."""
    parts: list[RenderableType] = [_headline(view, width)]
    if verdict := view.fleet.verdict:
        parts.append(Text(plain(verdict), no_wrap=True, overflow="ellipsis"))
    if view.trouble:
        parts.append(Text(plain(view.trouble), style="red", no_wrap=True, overflow="ellipsis"))
    if not view.fleet.processes:
        return Group(*parts, Text(), Text(NOBODY))
    names = _names(view.fleet.processes)
    sections: list[tuple[Sequence[_Column], list[Row]]] = [
        (_PROCESSES, [_process(row, names, view.now) for row in view.fleet.processes]),
        (_DRAFTERS, [asdict(row) | {"name": names.get(row.id, row.id)} for row in view.fleet.drafters]),
        (_REQUESTS, [_request(row, names) for row in view.fleet.requests]),
    ]
    left = height - len(parts)
    sections = [(columns, rows) for columns, rows in sections if rows]
    while len(sections) > 1 and left < _FEWEST_LINES * len(sections):
        del sections[0]  # the last table changes most
    for index, (columns, rows) in enumerate(sections):
        reserved = _FEWEST_LINES * (len(sections) - index - 1)
        room = max(1, left - reserved - 2)  # after an empty line and the headings
        parts += [Text(), *_table(columns, rows, width, room)]
        left -= 2 + min(len(rows), room)
    if view.fleet.verifiers and not view.fleet.requests and left >= 2:
        parts += [Text(), Text("no request is running", style="dim")]
    return Group(*parts)


def _headline(view: TopView, width: int) -> Text:
    """The total speed, the latest speeds, and the keys that quit."""
    running = len(view.fleet.requests)
    said = f"{total_speed(view.fleet):.1f} tok/s, {running} request{'' if running == 1 else 's'}"
    line = Text.assemble(("draftmesh", "bold"), "  ", said)
    leave = "q quits"
    room = width - line.cell_len - len(leave) - 4
    if room >= 8:
        line.append(f"  {sparkline(view.speeds, min(room, 60))}", style="cyan")
    gap = width - line.cell_len - len(leave)
    if gap > 0:
        line.append(" " * gap + leave, style="dim")
    line.truncate(width)
    return line


def _names(processes: Sequence[ProcessStatus]) -> dict[str, str]:
    """Short names by id: the kind and number of a process, and its machine if there are several."""
    several = len({row.host for row in processes}) > 1
    return {row.id: f"{row.kind} {row.pid}" + (f" on {row.host}" if several else "") for row in processes}


def _process(row: ProcessStatus, names: Mapping[str, str], now: float) -> Row:
    return asdict(row) | {"name": names[row.id], "age": age(now - row.created) if row.created else None}


def _request(row: RunningRequest, names: Mapping[str, str]) -> Row:
    return asdict(row) | {"guessed_by": [names.get(one, one) for one in row.drafters]}


def _table(columns: Sequence[_Column], rows: Sequence[Row], width: int, room: int) -> list[RenderableType]:
    """Headings and `room` lines: one per row, or the last one counts the missing rows."""
    kept = [column for column in columns if width >= column.least and any(_said(row, column) for row in rows)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, cells in zip(kept, _widths(kept, rows, width), strict=True):
        justify: Literal["left", "right"] = "left" if column.text else "right"
        table.add_column(column.heading, justify=justify, no_wrap=True, overflow="ellipsis", width=cells)
    whole = len(rows) <= room
    for row in rows if whole else rows[: room - 1]:
        table.add_row(*(Text(_said(row, column) or UNKNOWN) for column in kept))
    return [table] if whole else [table, Text(f"and {len(rows) - room + 1} more", style="dim")]


def _widths(columns: Sequence[_Column], rows: Sequence[Row], width: int) -> list[int]:
    """The columns' widths: figures get what they need, and names share the rest, the shortest first."""
    needs = [max(len(column.heading), *(len(_said(row, column)) for row in rows)) for column in columns]
    left = (
        width
        - 2 * (len(columns) - 1)
        - sum(need for column, need in zip(columns, needs, strict=True) if not column.text)
    )
    names = sorted((index for index, column in enumerate(columns) if column.text), key=lambda index: needs[index])
    for place, index in enumerate(names):
        needs[index] = max(1, min(needs[index], left // (len(names) - place)))
        left -= needs[index]
    return needs


def _said(row: Row, column: _Column) -> str:
    """The cell; empty without a value."""
    value = row.get(column.key)
    return "" if value is None else shown(column.key, value)
