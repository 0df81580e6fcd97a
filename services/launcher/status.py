"""`draftmesh status`: who is there, what it is worth, and why a request is not speculating."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.launcher import payoff
from services.launcher.figures import shown
from services.launcher.fleet_reader import read_cards
from shared.fleet import Fleet, Row, describe

_PROCESS: Final = ("kind", "id", "host", "pid", "device", "model", "load")
_VERIFIER: Final = (
    "id",
    "model",
    "aliases",
    "exactness",
    "layout",
    "speculation",
    "ctx",
    "tokens_per_second",
    "cache_hit_rate",
)
_DRAFTER: Final = (
    *("id", "model", "tokens_per_second", "drafted", "accepted", "added", "acceptance_rate", "tokens_per_round"),
    *("stale", "refused"),
)
_REQUEST: Final = ("request_id", "offset", "tokens_per_round", "drafters", "reason")


NOBODY: Final = "no processes: nobody is registered here; `draftmesh up` starts a fleet"


def run(redis: str, as_json: bool) -> int:
    """Print the fleet: 0, or 1 if nobody is there. Raises `BrokerError` if Redis does not answer."""
    fleet = describe(asyncio.run(read_cards(redis)))
    console = Console(highlight=False)
    if as_json:
        console.file.write(json.dumps(fleet, indent=2) + "\n")
    elif not fleet["processes"]:
        console.print(NOBODY)
    else:
        for table in tables(fleet):
            console.print(table)
    return 0 if fleet["processes"] else 1


def tables(fleet: Fleet) -> list[Table | Text]:
    """The fleet for a terminal; what is empty is left out."""
    parts: list[Table | Text] = [_table("processes", _PROCESS, fleet["processes"])]
    if fleet["verifiers"]:
        parts.append(_table("verifiers", _VERIFIER, fleet["verifiers"]))
        for verifier in fleet["verifiers"]:
            parts += _remarks(verifier)
    if fleet["drafters"]:
        parts.append(_table("drafters", _DRAFTER, fleet["drafters"]))
    if fleet["requests"]:
        parts.append(_table("requests", _REQUEST, fleet["requests"]))
    parts += [Text(row["note"], style="yellow") for row in fleet["conflicts"]]
    parts += [
        Text(f"{row['requests']} requests wait for {row['model']}: {row['reason']}", style="yellow")
        for row in fleet["deserted"]
    ]
    return parts


def _remarks(verifier: Row) -> list[Table | Text]:
    remarks: list[Table | Text] = []
    if verifier["exactness_note"]:
        remarks.append(Text(f"{verifier['exactness']}: {verifier['exactness_note']}"))
    if verifier["row_cost"]:
        table = Table("rows", *(str(rows) for rows in verifier["row_cost"]), title="cost of rows, in single steps")
        table.add_row("steps", *(f"{cost:.2f}" for cost in verifier["row_cost"].values()))
        table.add_row("ms", *(f"{ms:.1f}" for ms in verifier["row_ms"].values()))
        remarks += [table, Text(payoff.verdict(verifier["row_ms"]))]
    if verifier["drafts_ready"]["all"] is not None:
        remarks.append(Text(_beginnings(verifier["drafts_ready"])))
    return remarks


def _beginnings(shares: Mapping[str, float | None]) -> str:
    """How many rounds found drafts ready, for people."""
    after = (("accepted", "all were accepted"), ("refused", "a refusal"), ("plain", "a round without any"))
    parts = [f"{shares[end]:.0%} after {words}" for end, words in after if shares[end] is not None]
    return f"{shares['all']:.0%} of rounds found drafts ready: {', '.join(parts)}"


def _table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> Table:
    table = Table(*(column.replace("_", " ") for column in columns), title=title, title_justify="left")
    for row in rows:
        table.add_row(*(Text(shown(column, row[column])) for column in columns))
    return table
