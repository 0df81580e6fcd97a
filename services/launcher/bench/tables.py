"""The tables that `draftmesh bench` prints: speed, waiting, drafts if the servers report them, and peers. 80
columns."""

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.table import Table

from services.launcher.bench.plan import Cell
from services.launcher.bench.report import BenchReport
from services.launcher.bench.summary import Percentiles, Ratio, Spread, Summary

_OFFSETS: Final = 5  # more columns do not fit into a terminal; the JSON file has them all
_NONE: Final = "-"


def tables(report: BenchReport) -> list[Table]:
    """All tables that have data."""
    summaries = report.summaries
    parts = [_speed(summaries), _waiting(summaries)]
    if any(one.acceptance and one.acceptance.drafted for one in summaries):
        parts.append(_drafts(summaries))
    if report.comparisons:
        parts.append(_peers(report))
    return parts


def _speed(summaries: Sequence[Summary]) -> Table:
    table = titled(
        "tokens per second: one answer's, and all requests' together",
        *("server", "tok/s", "min–max", "together", "answers", "failed"),
    )
    for one in summaries:
        speed = one.tokens_per_second
        figures = (_mean(speed), _range(speed), _mean(one.total_tokens_per_second), str(one.answers))
        table.add_row(_label(one.cell), one.server, *figures, str(one.failed or _NONE))
    return table


def _waiting(summaries: Sequence[Summary]) -> Table:
    table = titled(
        "ms to the first token, per token, between bursts (median, p99)",
        *("server", "first", "p99", "token", "p99", "gap", "p99"),
    )
    for one in summaries:
        figures = (one.first_token_ms, one.time_per_token_ms, one.inter_token_ms)
        table.add_row(_label(one.cell), one.server, *(text for figure in figures for text in _percentiles(figure)))
    return table


def _drafts(summaries: Sequence[Summary]) -> Table:
    longest = max(len(one.acceptance.by_offset) for one in summaries if one.acceptance)
    offsets = range(min(longest, _OFFSETS))
    table = titled(
        "drafts: tokens per decode, share accepted, and by offset of those reached",
        *("server", "tok/dec", "accept", *(f"@{offset + 1}" for offset in offsets)),
    )
    for one in summaries:
        known = one.acceptance if one.acceptance and one.acceptance.drafted else None
        rates = known.by_offset if known else ()
        table.add_row(
            _label(one.cell),
            one.server,
            f"{one.tokens_per_round:.2f}" if known else _NONE,
            f"{known.rate:.0%}" if known else _NONE,
            *(f"{rates[offset]:.0%}" if offset < len(rates) else _NONE for offset in offsets),
        )
    return table


def _peers(report: BenchReport) -> Table:
    table = titled(
        f"{report.names[0]} over its peers: geometric means of ratios, answer by answer",
        *("peer", "tok/s", "min–max", "together", "min–max", "first token"),
    )
    for one in report.comparisons:
        all_of_them = len(one.cells) > 1
        table.add_row(
            _label(one.cells[0], "all" if all_of_them else ""),
            one.peer,
            *(*range_of(one.decode), *range_of(one.total), range_of(one.first_token)[0]),
            end_section=all_of_them,
        )
    return table


def titled(title: str, *headings: str, labelled: bool = True) -> Table:
    """An empty table: a column of labels if it is to have one, a column of names, and figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    if labelled:
        table.add_column("", no_wrap=True)
    table.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def label(work: str, temperature: float, concurrency: int) -> str:
    """A cell in the first column."""
    return f"{work} T={temperature:g}" + (f" ×{concurrency}" if concurrency > 1 else "")


def _label(cell: Cell, work: str = "") -> str:
    return label(work or cell.workload.value, cell.temperature, cell.concurrency)


def _mean(spread: Spread | None) -> str:
    return f"{spread.mean:.1f}" if spread else _NONE


def _range(spread: Spread | None) -> str:
    return f"{spread.min:.1f}–{spread.max:.1f}" if spread else _NONE


def _percentiles(figure: Percentiles | None) -> tuple[str, str]:
    return (_milliseconds(figure.p50), _milliseconds(figure.p99)) if figure else (_NONE, _NONE)


def _milliseconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def range_of(ratio: Ratio | None) -> tuple[str, str]:
    """A ratio, and the smallest and largest of its pairs."""
    return (f"{ratio.mean:.2f} x", f"{ratio.min:.2f}–{ratio.max:.2f}") if ratio else (_NONE, _NONE)
