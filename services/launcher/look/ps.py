"""`draftmesh ps`: one line per process."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.launcher.facts.fleet_reader import read_cards
from services.launcher.look.figures import UNKNOWN, age, shown
from services.launcher.look.status import NOBODY
from shared.fleet.describe import describe
from shared.fleet.fleet_values import ProcessStatus

_WIDE: Final = 400  # columns of a file or pipe: one line per process


def run(redis: str, as_json: bool) -> int:
    """Print the processes: 0, or 1 if there are none. Raises `BrokerError` if Redis does not answer."""
    processes = describe(asyncio.run(read_cards(redis))).processes
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    if as_json:
        console.file.write(json.dumps(msgspec.to_builtins(processes), indent=2) + "\n")
    elif processes:
        console.print(table(processes, time.time()))
    else:
        console.print(NOBODY)
    return 0 if processes else 1


def table(processes: Sequence[ProcessStatus], now: float) -> Table:
    """The processes at `now`, unix seconds; without borders, so that `awk` can read it."""
    listed = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("NAME", "KIND", "MODEL", "DEVICE", "LOAD"):
        listed.add_column(heading, overflow="fold")
    for heading in ("TOK/S", "SINCE"):
        listed.add_column(heading, justify="right", no_wrap=True)
    for row in processes:
        cells = [shown(name, getattr(row, name)) or UNKNOWN for name in ("id", "kind", "model", "device", "load")]
        since = age(now - row.created) if row.created else UNKNOWN
        listed.add_row(*map(Text, (*cells, shown("tokens_per_second", row.tokens_per_second), since)))
    return listed
