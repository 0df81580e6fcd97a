"""The tables that `draftmesh bench` prints: speed, waiting, drafts where they are reported, and peers."""

from collections.abc import Sequence
from typing import Any, Final

from rich import box
from rich.table import Table

from services.launcher.bench.plan import Cell
from services.launcher.bench.report import Report
from services.launcher.bench.summary import Percentiles, Ratio, Spread, Summary

_OFFSETS: Final = 8  # more columns do not fit into a terminal; the JSON file has them all


def tables(report: Report) -> list[Table]:
    """All that have something to say."""
    summaries = report.summaries
    parts = [_speed(summaries), _waiting(summaries)]
    if any(one.acceptance and one.acceptance.drafted for one in summaries):
        parts.append(_drafts(summaries))
    if report.comparisons:
        parts.append(_peers(report))
    return parts


def _speed(summaries: Sequence[Summary]) -> Table:
    table = _table(
        "tokens per second: of one answer after its first token; of all requests together", "server", numbers=(
            "tok/s", "min–max", "stdev", "together", "answers", "failed",
        )
    )  # fmt: skip
    for one in summaries:
        speed = one.tokens_per_second
        cells = (
            _mean(speed),
            _range(speed),
            f"{speed.stdev:.1f}" if speed else "-",
            _mean(one.total_tokens_per_second),
        )
        _row(table, one.cell, one.server, *cells, str(one.answers), str(one.failed or "-"))
    return table


def _waiting(summaries: Sequence[Summary]) -> Table:
    table = _table(
        "milliseconds: to the first token; per token; between bursts of tokens",
        "server",
        numbers=("first p50", "p99", "token p50", "p99", "gap p50", "p99"),
    )
    for one in summaries:
        figures = (one.first_token_ms, one.time_per_token_ms, one.inter_token_ms)
        _row(table, one.cell, one.server, *(text for figure in figures for text in _both(figure)))
    return table


def _drafts(summaries: Sequence[Summary]) -> Table:
    longest = max(len(one.acceptance.by_offset) for one in summaries if one.acceptance)
    offsets = range(min(longest, _OFFSETS))
    table = _table(
        "drafts: tokens per decode, drafts accepted, and by offset those accepted of those reached",
        "server",
        numbers=("/decode", "accepted", *(f"{offset + 1}." for offset in offsets)),
    )
    for one in summaries:
        if one.acceptance is None or not one.acceptance.drafted:
            _row(table, one.cell, one.server, *"--", *("" for _ in offsets))
            continue
        rates = one.acceptance.by_offset
        shares = [f"{rates[offset]:.0%}" if offset < len(rates) else "-" for offset in offsets]
        _row(table, one.cell, one.server, f"{one.tokens_per_round or 1:.2f}", f"{one.acceptance.rate:.0%}", *shares)
    return table


def _peers(report: Report) -> Table:
    table = _table(
        f"{report.names[0]} against its peers: geometric means of ratios, answer by answer (smallest–largest)",
        "peer",
        numbers=("tok/s", "", "together", "", "first token", "", "pairs"),
    )
    for one in report.comparisons:
        ratios = [text for ratio in (one.decode, one.total, one.first_token) for text in _both_of_ratio(ratio)]
        pairs = str(max(ratio.pairs for ratio in (one.decode, one.first_token) if ratio))
        every = len(one.cells) > 1
        _row(table, one.cells[0], one.peer, *ratios, pairs, work="all" if every else "", end_section=every)
    return table


def _table(title: str, name: str, *, numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("×", "T", "work", name):
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _row(table: Table, cell: Cell, name: str, *texts: str, work: str = "", **more: Any) -> None:
    table.add_row(str(cell.concurrency), f"{cell.temperature:g}", work or cell.workload.value, name, *texts, **more)


def _mean(spread: Spread | None) -> str:
    return f"{spread.mean:.1f}" if spread else "-"


def _range(spread: Spread | None) -> str:
    return f"{spread.min:.1f}–{spread.max:.1f}" if spread else "-"


def _both(figure: Percentiles | None) -> tuple[str, str]:
    return (f"{figure.p50:.1f}", f"{figure.p99:.1f}") if figure else ("-", "-")


def _both_of_ratio(ratio: Ratio | None) -> tuple[str, str]:
    return (f"{ratio.mean:.2f} x", f"{ratio.min:.2f}–{ratio.max:.2f}") if ratio else ("-", "")
