"""Findings and how they are shown and kept.

Keys of bench/results/versus.json:
  created     when the run began, UTC
  machine     cpu, cores, memory_bytes, system, python, llama_cpp: what the numbers hold for
  settings    pair, repetitions, prompts, tokens, peers
  cells       by name, each written as soon as it is done:
    findings    cell, temperature, what; ours and theirs (value, low, high: mean, and the lowest and highest mean of a
                repetition); opponent (the peer's setting); ratio of ours to theirs (geometric mean over pairs with the
                same prompt and repetition); wanted (null where the figure is only told), at_most, reached; unit
    auditions   mean tokens per second of every peer setting over some prompts, by temperature: what the opponents were
                chosen by
    notes       what to know before believing the numbers
    runs        every measured request
"""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.table import Table

from bench.running import console
from bench.versus.contest import Run, Runs
from bench.versus.ratios import Key, RatioSpread, Rounds, alone, ideal_tokens_per_second, mean, ratio

IDEAL_WANTED: Final = 0.92


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One comparison. `theirs` is None where the figure stands alone; then `ratio` is that figure."""

    cell: str
    what: str
    ratio: RatioSpread
    temperature: float | None = None
    ours: RatioSpread | None = None
    theirs: RatioSpread | None = None
    opponent: str = ""
    wanted: float | None = None
    at_most: bool = False  # whether less is better
    unit: str = "tok/s"

    @property
    def reached(self) -> bool | None:
        """Whether the wanted ratio was reached; None if none is wanted."""
        if self.wanted is None:
            return None
        return self.ratio.value <= self.wanted if self.at_most else self.ratio.value >= self.wanted


@dataclass(slots=True, kw_only=True)
class CellResult:
    """What one cell found."""

    findings: list[Finding] = field(default_factory=list)
    auditions: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


def compared(
    cell: str, what: str, temperature: float, runs: Runs, names: tuple[str, str], wanted: float | None, theirs: str = ""
) -> Finding:
    """The speed of the first of two contestants, ours, over that of the second, which tables call `theirs`."""
    ours, others = (runs.speeds(name) for name in names)
    return Finding(
        cell=cell,
        what=what,
        temperature=temperature,
        ours=mean(ours),
        theirs=mean(others),
        opponent=theirs or names[1],
        ratio=ratio(ours, others),
        wanted=wanted,
    )


def over(cell: str, what: str, temperature: float, speeds: Mapping[Key, float], by: float) -> Finding:
    """The ratio of measured speeds to a computed one, `by`."""
    return Finding(
        cell=cell,
        what=what,
        temperature=temperature,
        ours=mean(speeds),
        theirs=alone(by),
        ratio=mean({key: speed / by for key, speed in speeds.items()}),
    )


def of_the_ideal(
    cell: str, temperature: float, speeds: Mapping[Key, float], rounds: Rounds, row_ms: Callable[[float], float]
) -> Finding:
    """The ratio of measured speeds to the ideal one for these rounds."""
    ideal = ideal_tokens_per_second(rounds, row_ms)
    note = f"{rounds.tokens_per_round:.2f} tokens on {rounds.rows_per_round:.1f} rows"
    return replace(over(cell, "of the ideal E/v(rows)", temperature, speeds, ideal), opponent=note, wanted=IDEAL_WANTED)


async def measure(
    parts: Iterable[tuple[str, str, Callable[[], Awaitable[CellResult]]]], file: "ResultFile", tell: Callable[..., None]
) -> None:
    """Take one part after the other, each with a name and a title; keep and print what it found."""
    for name, title, part in parts:
        tell(f"{name}: loading")
        result = await part()
        file.add(name, result)
        tell(steps=1)
        if result.auditions:
            console.print(audition_table(result.auditions))
        console.print(finding_table(title, result.findings), *result.notes, sep="\n")
    console.print(f"written to {file.path}")


class ResultFile:
    """A JSON file, written whole after every part; an interrupted run keeps what is done."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        self._content = head

    def add(self, name: str, result: CellResult) -> None:
        """Keep one cell's result. A name that is there already is replaced."""
        findings = [{**asdict(finding), "reached": finding.reached} for finding in result.findings]
        cells = self._content.get("cells", {})
        self.keep({"cells": cells | {name: {**asdict(result), "findings": findings}}})

    def keep(self, values: dict[str, Any]) -> None:
        """Keep values in place of those with the same keys, and write the file."""
        self._content |= values
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(self._content, indent=1, default=str) + "\n")
        temporary.replace(self.path)


def finding_table(name: str, findings: list[Finding]) -> Table:
    """One line per comparison."""
    headings = ("", "T", "ours", "theirs", "opponent", "ratio", "low–high", "wanted", "reached")
    table = titled(name, *headings, left=("", "opponent"))
    for finding in findings:
        table.add_row(
            finding.what,
            "-" if finding.temperature is None else f"{finding.temperature:g}",
            _figure(finding.ours, finding.unit),
            _figure(finding.theirs, finding.unit),
            finding.opponent or "-",
            f"{finding.ratio.value:.3f}",
            f"{finding.ratio.low:.3f}–{finding.ratio.high:.3f}",
            *verdict(finding),
        )
    return table


def audition_table(auditions: Mapping[str, Mapping[str, float]]) -> Table:
    """One line per setting of a peer, with its speed at each temperature."""
    table = titled("peers' settings before the contest, tok/s", "", *auditions)
    for name in dict.fromkeys(name for speeds in auditions.values() for name in speeds):
        speeds = (found.get(name) for found in auditions.values())
        table.add_row(name, *("-" if speed is None else f"{speed:.2f}" for speed in speeds))
    return table


def titled(title: str, *headings: str, left: Collection[str] = ("",)) -> Table:
    """An empty table; columns are aligned to the right but for those with the headings `left`."""
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def yes_or_no(reached: bool | None) -> str:
    """Whether something was reached, in colour."""
    return {True: "[green]yes[/]", False: "[red]no[/]", None: "-"}[reached]


def verdict(finding: Finding) -> tuple[str, str]:
    """The last two cells of a line: what was wanted, and whether it was reached."""
    sign = "<=" if finding.at_most else ">="
    return "-" if finding.wanted is None else f"{sign} {finding.wanted:,g}", yes_or_no(finding.reached)


def _figure(figure: RatioSpread | None, unit: str) -> str:
    return "-" if figure is None else f"{figure.value:.1f} {unit}"
