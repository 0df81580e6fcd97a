"""What a run found, as JSON and as tables.

Keys of bench/results/gateway.json:
  created     when the run began, UTC
  machine     cpu, cores, memory_bytes, system, python: what the numbers hold for
  settings    crowds per scenario, seconds each, requests of the memory run
  scenarios   by name:
    what        what is on which core
    crowd       streams, verifiers, round_ms, width (tokens per commit), stalled (clients that read nothing)
    figures     by name: value (median over crowds), low, high, wanted (null where it is only told), reached
    runs        every crowd, keys as in bench/gateway/streams.py
  memory      warm, after (bytes, after every tenth), requests, left, share (growth), wanted, reached
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.table import Table

from bench.gateway.memory import Growth
from bench.gateway.streams import Crowd, Run
from services.launcher.bench import machine

GROWTH_WANTED: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One crowd and where the processes run. `bound`: whether the wanted figures are asked of it."""

    name: str
    what: str
    crowd: Crowd = field(default_factory=Crowd)
    apart: bool = True
    bound: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of several crowds: median, lowest and highest."""

    name: str
    unit: str
    value: float
    low: float
    high: float
    wanted: float | None = None
    at_most: bool = True

    @property
    def reached(self) -> bool | None:
        """Whether the median is as wanted; None if nothing is."""
        if self.wanted is None:
            return None
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted


def figures(runs: Sequence[Run], bound: bool) -> list[Figure]:
    """What is told of these crowds."""

    def of(name: str, unit: str, values: Sequence[float], wanted: float | None = None, at_most: bool = True) -> Figure:
        spread = statistics.median(values), min(values), max(values)
        return Figure(name, unit, *spread, wanted if bound else None, at_most)

    return [
        of("SSE tokens", "per s", [run.tokens_per_second for run in runs], 15_000, at_most=False),
        of("added latency, p99", "ms", [run.p99_ms for run in runs], 25),
        of("added latency, median", "ms", [run.median_ms for run in runs]),
        of("added latency, worst", "ms", [run.worst_ms for run in runs]),
        of("gateway's CPU per 1,000 tokens", "ms", [run.gateway_us_per_token for run in runs]),
        *(of(f"{name}'s share of a core", "", [run.cpu[name] for run in runs]) for name in runs[0].cpu),
    ]


class Report:
    """The JSON file, written whole after every scenario; an interrupted run keeps what is done."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self._content: dict[str, Any] = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": asdict(machine.look()),
            "settings": settings,
            "scenarios": {},
        }

    def add(self, scenario: Scenario, runs: Sequence[Run]) -> None:
        """Keep one scenario."""
        told = figures(runs, scenario.bound)
        self._content["scenarios"][scenario.name] = {
            "what": scenario.what,
            "crowd": asdict(scenario.crowd),
            "figures": {one.name: {**asdict(one), "reached": one.reached} for one in told},
            "runs": [asdict(run) for run in runs],
        }
        self._write()

    def add_growth(self, growth: Growth) -> None:
        """Keep the memory run."""
        reached = growth.share < GROWTH_WANTED
        self._content["memory"] = {**asdict(growth), "share": growth.share, "wanted": GROWTH_WANTED, "reached": reached}
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(self._content, indent=1) + "\n")
        temporary.replace(self.path)


def run_table(scenario: Scenario, runs: Sequence[Run]) -> Table:
    """One line per figure."""
    crowd = scenario.crowd
    head = (
        f"{scenario.name}: {crowd.streams} streams, {crowd.width} tokens every {crowd.round_ms:g} ms; {scenario.what}"
    )
    table = Table(title=head, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for heading in ("", "median", "low–high", "wanted", "reached"):
        table.add_column(heading, justify="right" if heading else "left")
    for one in figures(runs, scenario.bound):
        table.add_row(
            one.name,
            f"{one.value:,.2f} {one.unit}",
            f"{one.low:,.2f}–{one.high:,.2f}",
            "-" if one.wanted is None else f"{'<=' if one.at_most else '>='} {one.wanted:,g}",
            {True: "[green]yes[/]", False: "[red]no[/]", None: "-"}[one.reached],
        )
    return table


def growth_line(growth: Growth) -> str:
    """The memory run in one line."""
    warm, last = growth.warm / 1e6, growth.after[-1] / 1e6
    verdict = "[green]yes[/]" if growth.share < GROWTH_WANTED else "[red]no[/]"
    return (
        f"memory: {warm:.1f} MB warm, {last:.1f} MB {growth.requests:,} requests later ({growth.left:,} left by their "
        f"clients): {growth.share:+.1%}, wanted < {GROWTH_WANTED:.0%}: {verdict}"
    )
