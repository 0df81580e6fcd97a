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

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich.table import Table

from bench.gateway.memory import Growth
from bench.gateway.streams import Crowd, Run
from bench.versus.ratios import RatioSpread
from bench.versus.results import Finding, titled, verdict, yes_or_no

GROWTH_WANTED: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One crowd and where the processes run. `bound`: whether the wanted figures are asked of it."""

    name: str
    what: str
    crowd: Crowd = field(default_factory=Crowd)
    apart: bool = True
    bound: bool = True


def figures(scenario: Scenario, runs: Sequence[Run]) -> list[Finding]:
    """What is told of these crowds: medians, and the lowest and highest."""

    def of(what: str, unit: str, values: Sequence[float], wanted: float | None = None, at_most: bool = True) -> Finding:
        spread = RatioSpread(value=statistics.median(values), low=min(values), high=max(values))
        limit = wanted if scenario.bound else None
        return Finding(cell=scenario.name, what=what, ratio=spread, wanted=limit, at_most=at_most, unit=unit)

    return [
        of("SSE tokens", "per s", [run.tokens_per_second for run in runs], 15_000, at_most=False),
        of("added latency, p99", "ms", [run.p99_ms for run in runs], 25),
        of("added latency, median", "ms", [run.median_ms for run in runs]),
        of("added latency, worst", "ms", [run.worst_ms for run in runs]),
        of("gateway's CPU per 1,000 tokens", "ms", [run.gateway_us_per_token for run in runs]),
        *(of(f"{name}'s share of a core", "", [run.cpu[name] for run in runs]) for name in runs[0].cpu),
    ]


def as_json(scenario: Scenario, runs: Sequence[Run]) -> dict[str, Any]:
    """One scenario."""
    return {
        "what": scenario.what,
        "crowd": asdict(scenario.crowd),
        "figures": {
            one.what: {**asdict(one.ratio), "wanted": one.wanted, "reached": one.reached}
            for one in figures(scenario, runs)
        },
        "runs": [asdict(run) for run in runs],
    }


def growth_as_json(growth: Growth) -> dict[str, Any]:
    """The memory run."""
    reached = growth.share < GROWTH_WANTED
    return {**asdict(growth), "share": growth.share, "wanted": GROWTH_WANTED, "reached": reached}


def run_table(scenario: Scenario, runs: Sequence[Run]) -> Table:
    """One line per figure."""
    crowd = scenario.crowd
    head = (
        f"{scenario.name}: {crowd.streams} streams, {crowd.width} tokens every {crowd.round_ms:g} ms; {scenario.what}"
    )
    table = titled(head, "", "median", "low–high", "wanted", "reached")
    for one in figures(scenario, runs):
        table.add_row(
            one.what,
            f"{one.ratio.value:,.2f} {one.unit}",
            f"{one.ratio.low:,.2f}–{one.ratio.high:,.2f}",
            *verdict(one),
        )
    return table


def growth_line(growth: Growth) -> str:
    """The memory run in one line."""
    warm, last = growth.warm / 1e6, growth.after[-1] / 1e6
    reached = yes_or_no(growth.share < GROWTH_WANTED)
    return (
        f"memory: {warm:.1f} MB warm, {last:.1f} MB {growth.requests:,} requests later ({growth.left:,} left by their "
        f"clients): {growth.share:+.1%}, wanted < {GROWTH_WANTED:.0%}: {reached}"
    )
