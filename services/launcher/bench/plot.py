"""Draws a run as PNG: tokens per second by workload, all requests together by concurrency, acceptance by offset.

Needs matplotlib, which the extra `plot` installs; the Agg renderer, so no display.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from services.launcher.bench.acceptance import pooled
from services.launcher.bench.report import BenchReport
from services.launcher.bench.summary import Summary

_PANEL: Final = (5.6, 3.4)  # inches
_DPI: Final = 150
# Okabe and Ito's palette: colour-blind people can tell them apart too.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_SHOWN_OFFSETS: Final = 16


def draw(report: BenchReport, path: Path) -> None:
    """Write the picture to `path`."""
    figure = _figure(report)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=_DPI)


def _figure(report: BenchReport) -> Figure:
    summaries = report.summaries
    temperatures = sorted({one.cell.temperature for one in summaries})
    rows: list[Callable[[Axes, Sequence[Summary], Sequence[str]], str]] = [_speeds]
    if len({one.cell.concurrency for one in summaries}) > 1:
        rows.append(_loads)
    if any(one.acceptance and one.acceptance.kept for one in summaries):
        rows.append(_offsets)
    # One temperature makes one column, which needs the width of two for its bars.
    width = _PANEL[0] * max(len(temperatures), 1.5)
    figure = Figure(figsize=(width, _PANEL[1] * len(rows) + 0.9), layout="constrained")
    panels = figure.subplots(len(rows), max(1, len(temperatures)), squeeze=False, sharex="row", sharey="row")
    for panel_row, draw_panel in zip(panels, rows, strict=True):
        for axes, temperature in zip(panel_row, temperatures, strict=True):
            shown = [one for one in summaries if one.cell.temperature == temperature]
            title = draw_panel(axes, shown, report.names)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", alpha=0.25)
            axes.set_axisbelow(True)
            axes.set_title(f"{title}, temperature {temperature:g}", fontsize=10, loc="left")
        # Only after the last panel of the row, because it ends the automatic scaling of all.
        panel_row[0].set_ylim(bottom=0)
        for axes in panel_row[1:]:
            axes.set_ylabel("")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(1, min(4, len(labels))), frameon=False)
    figure.supxlabel(_caption(report), fontsize=8, color="#555555")
    figure.get_layout_engine().set(h_pad=0.1)  # type: ignore[union-attr, call-arg]
    return figure


def _caption(report: BenchReport) -> str:
    settings = report.settings
    return (
        f"bars: means, whiskers: smallest and largest; {settings.repeat} repetitions,"
        f" up to {settings.tokens} tokens per answer, seed {settings.seed}"
    )


def _speeds(axes: Axes, summaries: Sequence[Summary], names: Sequence[str]) -> str:
    least = min((one.cell.concurrency for one in summaries), default=1)
    shown = [one for one in summaries if one.cell.concurrency == least]
    workloads = list(dict.fromkeys(one.cell.workload for one in shown))
    width = 0.8 / max(2, len(names))  # keeps the bars of a single server narrow
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
        for bar, (_, speed) in zip(bars, points, strict=True):
            at = bar.get_x() + bar.get_width() / 2
            # At the foot, where whiskers seldom are.
            axes.annotate(
                f"{speed.mean:.1f}", (at, 0), (0, 3), textcoords="offset points", ha="center", fontsize=7, color="white"
            )
    axes.set_xticks(range(len(workloads)), [workload.value for workload in workloads])
    axes.set_xlim(-0.5, max(1, len(workloads)) - 0.5)
    axes.set_ylabel("tokens/s of one answer")
    return "one request at a time" if least == 1 else f"{least} requests at once"


def _loads(axes: Axes, summaries: Sequence[Summary], names: Sequence[str]) -> str:
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
    axes.set_xlabel("requests at once")
    axes.set_ylabel("tokens/s together")
    return "all workloads"


def _offsets(axes: Axes, summaries: Sequence[Summary], names: Sequence[str]) -> str:
    for index, name in enumerate(names):
        total = pooled(one.acceptance for one in summaries if one.server == name and one.acceptance)
        rates = total.by_offset[:_SHOWN_OFFSETS] if total else ()
        places = range(1, len(rates) + 1)
        axes.plot(places, rates, color=_colour(index), linewidth=1)
        if total and rates:
            sizes = [4 + 60 * reached / total.reached[0] for reached in total.reached[: len(rates)]]
            axes.scatter(places, rates, sizes, color=_colour(index), clip_on=False, zorder=3)
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set_xlabel("offset in the chain of drafts (dots: the larger, the more drafts got there)")
    axes.set_ylabel("accepted of those reached")
    return "drafts of all workloads"


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]
