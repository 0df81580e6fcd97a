"""Findings and how they are shown and kept.

Keys of bench/results/versus.json:
  created     when the run began, UTC
  machine     cpu, cores, memory_bytes, system, python, llama_cpp: what the numbers hold for
  settings    repetitions, prompts, tokens, peers
  cells       by name, each written as soon as it is done:
    findings    cell, temperature, what; ours and theirs (value, low, high: mean, and the lowest and highest mean of a
                repetition); opponent (the peer's setting); ratio of ours to theirs (geometric mean over pairs with the
                same prompt and repetition); wanted (null where the figure is only told), at_most, reached; unit
    auditions   tokens per second of every peer setting on one prompt, by temperature: what the opponents were chosen by
    notes       what to know before believing the numbers
    runs        every measured request
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from bench.versus.contest import Run
from bench.versus.ratios import RatioSpread


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


class ResultFile:
    """The JSON file, written whole after every cell; an interrupted run keeps what is done."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        self._content: dict[str, Any] = {**head, "cells": {}}

    def add(self, name: str, result: CellResult) -> None:
        """Keep one cell's result. A name that is there already is replaced."""
        findings = [{**asdict(finding), "reached": finding.reached} for finding in result.findings]
        self._content["cells"][name] = {**asdict(result), "findings": findings}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(self._content, indent=1, default=str) + "\n")
        temporary.replace(self.path)


def finding_table(name: str, findings: list[Finding]) -> Table:
    """One line per comparison."""
    table = Table(title=name, box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "T", "ours", "theirs", "opponent", "ratio", "low–high", "wanted", "reached"):
        table.add_column(heading, justify="left" if heading in ("", "opponent") else "right")
    for finding in findings:
        verdict = {True: "[green]yes[/]", False: "[red]no[/]", None: "-"}[finding.reached]
        sign = "<=" if finding.at_most else ">="
        table.add_row(
            finding.what,
            "-" if finding.temperature is None else f"{finding.temperature:g}",
            _figure(finding.ours, finding.unit),
            _figure(finding.theirs, finding.unit),
            finding.opponent or "-",
            f"{finding.ratio.value:.3f}",
            f"{finding.ratio.low:.3f}–{finding.ratio.high:.3f}",
            "-" if finding.wanted is None else f"{sign} {finding.wanted:g}",
            verdict,
        )
    return table


def _figure(figure: RatioSpread | None, unit: str) -> str:
    return "-" if figure is None else f"{figure.value:.1f} {unit}"
