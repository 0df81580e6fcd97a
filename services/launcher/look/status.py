"""`draftmesh status`: shows the processes, what each drafter adds, and why a request is not speculating."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from services.launcher.facts.fleet_reader import read_cards
from services.launcher.look.figures import shown
from shared.fleet.describe import describe
from shared.fleet.fleet_values import FleetStatus, VerifierStatus

# Keys with their headings, short so that a terminal of 80 columns holds them.
_PROCESS: Final = {"kind": "kind", "id": "id", "device": "device", "model": "model", "load": "load"}
_VERIFIER: Final = {
    "model": "model",
    "aliases": "also",
    "exactness": "exact",
    "layout": "layout",
    "speculation": "drafts",
    "ctx": "ctx",
    "tokens_per_second": "tok/s",
    "cache_hit_rate": "cached",
}
_DRAFTER: Final = {
    "id": "id",
    "model": "model",
    "tokens_per_second": "tok/s",
    "drafted": "drafted",
    "acceptance_rate": "accepted",
    "adds": "adds/round",
    "round_trip_ms": "rtt ms",
    "stale": "stale",
}
_REQUEST: Final = {
    "request_id": "request",
    "offset": "tokens",
    "tokens_per_second": "tok/s",
    "tokens_per_round": "tok/round",
    "reason": "why it is not speculating",
}
_NUMBERS: Final = frozenset(
    {
        *("ctx", "tokens_per_second", "cache_hit_rate", "drafted", "acceptance_rate", "adds"),
        *("round_trip_ms", "stale", "offset", "tokens_per_round"),
    }
)

NOBODY: Final = "no process is registered in this Redis; `draftmesh up` starts a fleet"


def run(redis: str, as_json: bool) -> int:
    """Print the fleet: 0, or 1 if it has no process. Raises `BrokerError` if Redis does not answer."""
    fleet = describe(asyncio.run(read_cards(redis)))
    console = Console(highlight=False)
    if as_json:
        console.file.write(json.dumps(msgspec.to_builtins(fleet), indent=2) + "\n")
    elif not fleet.processes:
        console.print(NOBODY)
    else:
        for table in tables(fleet):
            console.print(table)
    return 0 if fleet.processes else 1


def tables(fleet: FleetStatus) -> list[RenderableType]:
    """The fleet for a terminal; without empty tables."""
    parts: list[RenderableType] = [Text(fleet.verdict, style="bold")]
    parts.append(_table("processes", _PROCESS, fleet.processes))
    if fleet.verifiers:
        parts.append(_table("verifiers", _VERIFIER, fleet.verifiers))
        for verifier in fleet.verifiers:
            parts += _remarks(verifier)
    if fleet.drafters:
        parts.append(_table("drafters", _DRAFTER, fleet.drafters))
        parts += [
            Text(f"{row.id} is refused by {row.verifier}: {row.refused}", style="red")
            for row in fleet.drafters
            if row.refused is not None
        ]
    if fleet.requests:
        parts.append(_table("requests", _REQUEST, fleet.requests))
    parts += [Text(row.note, style="yellow") for row in fleet.conflicts]
    parts += [
        Text(f"{row.requests} requests wait for {row.model}: {row.reason}", style="yellow") for row in fleet.deserted
    ]
    return parts


_SHARING: Final = {
    "turns": "takes turns with the drafter on its cores or device: each has all of them in its turn",
    "beside": "decodes beside the drafter on its cores: each has a part of them",
}


def _remarks(verifier: VerifierStatus) -> list[RenderableType]:
    remarks: list[RenderableType] = []
    if verifier.exactness_note:
        remarks.append(Text(f"{verifier.exactness}: {verifier.exactness_note}"))
    if verifier.sharing in _SHARING:
        remarks.append(Text(_SHARING[verifier.sharing]))
    if verifier.row_cost:
        table = _borderless("rows", *map(str, verifier.row_cost))
        table.add_row("steps", *(f"{cost:.2f}" for cost in verifier.row_cost.values()))
        table.add_row("ms", *(f"{ms:.1f}" for ms in verifier.row_ms.values()))
        remarks += [
            _titled(f"cost of rows, from {verifier.row_source}", table),
            Text(verifier.payoff.sentence),
        ]
    if verifier.drafts_ready["all"] is not None:
        remarks.append(Text(_beginnings(verifier.drafts_ready)))
    return remarks


def _beginnings(shares: Mapping[str, float | None]) -> str:
    after = (("accepted", "all were accepted"), ("refused", "a refusal"), ("plain", "a round without any"))
    parts = [f"{shares[end]:.0%} after {words}" for end, words in after if shares[end] is not None]
    return f"{shares['all']:.0%} of rounds found drafts ready: {', '.join(parts)}"


def _table(title: str, columns: Mapping[str, str], rows: Sequence[msgspec.Struct]) -> RenderableType:
    table = _borderless()
    for key, heading in columns.items():
        number = key in _NUMBERS
        table.add_column(heading, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(key, getattr(row, key))) for key in columns))
    return _titled(title, table)


def _borderless(*columns: str) -> Table:
    """A table without borders, which would take the room of another column."""
    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def _titled(title: str, table: Table) -> RenderableType:
    return Group(Text(f"\n{title}", style="bold"), table)
