"""Draws a run as PNG: tokens per second by workload, all requests together by concurrency, acceptance by offset.

Needs matplotlib, which the extra `plot` installs; the Agg renderer, so no display.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from services.launcher.bench.acceptance import pooled
from services.launcher.bench.report import Report
from services.launcher.bench.summary import Summary

_PANEL: Final = (5.6, 3.4)  # inches
_DPI: Final = 150
# Okabe and Ito's palette: told apart also by people who see colours differently.
_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
_SHOWN_OFFSETS: Final = 16


def draw(report: Report, path: Path) -> None:
    """Write the picture to `path`."""
    figure = _figure(report)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=_DPI)


def _figure(report: Report) -> Figure:
    summaries = report.summaries
    temperatures = sorted({one.cell.temperature for one in summaries})
    rows: list[Any] = [_speeds]
    if len({one.cell.concurrency for one in summaries}) > 1:
        rows.append(_loads)
    if any(one.acceptance and one.acceptance.kept for one in summaries):
        rows.append(_offsets)
    # One temperature makes one column, which needs the width of two for its bars.
    width = _PANEL[0] * max(len(temperatures), 1.5)
    figure = Figure(figsize=(width, _PANEL[1] * len(rows) + 0.9), layout="constrained")
    panels = figure.subplots(len(rows), max(1, len(temperatures)), squeeze=False, sharey="row")
    for panel_row, draw_panel in zip(panels, rows, strict=True):
        for axes, temperature in zip(panel_row, temperatures, strict=True):
            shown = [one for one in summaries if one.cell.temperature == temperature]
            draw_panel(axes, shown, report.names)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", alpha=0.25)
            axes.set_axisbelow(True)
            axes.set_title(f"{axes.get_title()}, temperature {temperature:g}", fontsize=10, loc="left")
        for axes in panel_row[1:]:
            axes.set_ylabel("")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(1, min(4, len(labels))), frameon=False)
    figure.supxlabel(_caption(report), fontsize=8, color="#555555")
    return figure


def _caption(report: Report) -> str:
    settings = report.settings
    return (
        f"bars: means, whiskers: smallest and largest; {settings.repeat} repetitions,"
        f" up to {settings.tokens} tokens per answer, seed {settings.seed}"
    )


def _speeds(axes: Axes, summaries: Sequence[Summary], names: Sequence[str]) -> None:
    least = min((one.cell.concurrency for one in summaries), default=1)
    shown = [one for one in summaries if one.cell.concurrency == least]
    workloads = list(dict.fromkeys(one.cell.workload for one in shown))
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        mine = {one.cell.workload: one.tokens_per_second for one in shown if one.server == name}
        points = [(at, speed) for at, workload in enumerate(workloads) if (speed := mine.get(workload))]
        places = [at + (index - (len(names) - 1) / 2) * width for at, _ in points]
        bars = axes.bar(
            places,
            [speed.mean for _, speed in points],
            width * 0.94,
            yerr=[[speed.mean - speed.min for _, speed in points], [speed.max - speed.mean for _, speed in points]],
            error_kw={"elinewidth": 1, "capsize": 2.5, "ecolor": "#333333"},
            color=_colour(index),
            label=name,
        )
        axes.bar_label(bars, fmt="%.1f", label_type="center", fontsize=7, color="white")
    axes.set_xticks(range(len(workloads)), [workload.value for workload in workloads])
    axes.set_xlim(-0.5, max(1, len(workloads)) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("tokens/s of one answer")
    axes.set_title("one request at a time" if least == 1 else f"{least} requests at once")


def _loads(axes: Axes, summaries: Sequence[Summary], names: Sequence[str]) -> None:
    """All workloads together: the mean over workloads of a cell's mean."""
    concurrencies = sorted({one.cell.concurrency for one in summaries})
    for index, name in enumerate(names):
        points = []
        for concurrency in concurrencies:
            spreads = [
                one.total_tokens_per_second
                for one in summaries
                if one.server == name and one.cell.concurrency == concurrency and one.total_tokens_per_second
            ]
            if spreads:
                means = [spread.mean for spread in spreads]
                low, high = min(spread.min for spread in spreads), max(spread.max for spread in spreads)
                points.append((concurrency, sum(means) / len(means), low, high))
        places = [concurrency for concurrency, *_ in points]
        axes.plot(places, [mean for _, mean, *_ in points], marker="o", color=_colour(index))
        lows, highs = [low for *_, low, _ in points], [high for *_, high in points]
        axes.fill_between(places, lows, highs, color=_colour(index), alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(concurrencies, [str(concurrency) for concurrency in concurrencies])
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("requests at once")
    axes.set_ylabel("tokens/s together")
    axes.set_title("all workloads")


def _offsets(axes: Axes, summaries: Sequence[Summary], names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        total = pooled(one.acceptance for one in summaries if one.server == name and one.acceptance)
        rates = total.by_offset[:_SHOWN_OFFSETS] if total else ()
        axes.plot(range(1, len(rates) + 1), rates, marker="o", markersize=4, color=_colour(index))
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set_xlabel("offset in the chain of drafts")
    axes.set_ylabel("accepted of those reached")
    axes.set_title("drafts of all workloads")


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]
