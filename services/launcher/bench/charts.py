"""The charts of a card's page as SVG shapes: sizes for a phone's width, colours by class. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from services.launcher.bench.card import Card, ReportedAcceptance, ReportedComparison, ReportedResult, ReportedVerifier

WIDTH: Final = 360.0  # of all charts, in units of about one pixel of a phone
_LEFT, _RIGHT = 58.0, 44.0  # room for names and for figures beside bars
_BAR, _GAP, _GROUP = 13.0, 3.0, 12.0
_PLOT_HEIGHT: Final = 190.0
_TOP, _BOTTOM = 10.0, 42.0
_OFFSETS: Final = 16


@dataclass(frozen=True, slots=True)
class SvgElement:
    """An SVG element with its attributes and text."""

    tag: str
    attributes: Mapping[str, str]
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture; `summary` says in words what it shows, `keys` are names of series by class, for a legend."""

    title: str
    summary: str
    height: float
    shapes: tuple[SvgElement, ...]
    keys: tuple[tuple[str, str], ...] = ()


def charts(card: Card) -> list[Chart]:
    """Every chart that has data."""
    found = [_speeds(card, temperature) for temperature in card.settings.temperatures]
    found += [_loads(card, temperature) for temperature in card.settings.temperatures]
    found += [_speedups(card, peer) for peer in dict.fromkeys(one.peer for one in card.comparisons)]
    found.append(_acceptance(card))
    found += [_row_costs(one) for server in card.servers for one in server.verifiers or ()]
    return [chart for chart in found if chart]


def classes(card: Card) -> dict[str, str]:
    """The CSS class of each server's colour: plain decoding is grey, the others are told apart."""
    coloured = [server.name for server in card.servers if not server.plain]
    return {name: f"s{index % 5}" for index, name in enumerate(coloured)} | {
        server.name: "plain" for server in card.servers if server.plain
    }


def _speeds(card: Card, temperature: float) -> Chart | None:
    """A bar per workload and server, at the fewest requests at once."""
    fewest = min(card.settings.concurrencies)
    shown = [
        one
        for one in card.results
        if one.temperature == temperature and one.concurrency == fewest and one.tokens_per_second
    ]
    if not shown:
        return None
    top = max(one.tokens_per_second.max for one in shown if one.tokens_per_second)
    ticks = _ticks(top)
    scale = (WIDTH - _LEFT - _RIGHT) / ticks[-1]
    colours = classes(card)
    shapes: list[SvgElement] = []
    y = _TOP
    for workload in dict.fromkeys(one.workload for one in shown):
        group = [one for one in shown if one.workload == workload]
        height = len(group) * (_BAR + _GAP) - _GAP
        shapes.append(_label(_LEFT - 8, y + height / 2 + 4, workload, "end"))
        for one in group:
            shapes += _bar(one, y, scale, colours[one.server])
            y += _BAR + _GAP
        y += _GROUP
    bottom = y - _GROUP + 4
    grid = [shape for tick in ticks for shape in _vertical(_LEFT + tick * scale, _TOP - 4, bottom, f"{tick:g}")]
    names = [one.server for one in shown]
    at_once = "" if fewest == 1 else f", {fewest} requests at once"
    return Chart(
        title=f"Tokens per second, temperature {temperature:g}{at_once}",
        summary="; ".join(
            f"{one.workload}, {one.server}: {one.tokens_per_second.mean:.1f}" for one in shown if one.tokens_per_second
        ),
        height=bottom + 22,
        shapes=(*grid, *shapes),
        keys=_keys(names, colours),
    )


def _bar(one: ReportedResult, y: float, scale: float, colour: str) -> list[SvgElement]:
    speed = one.tokens_per_second
    assert speed is not None
    middle = y + _BAR / 2
    low, high = _LEFT + speed.min * scale, _LEFT + speed.max * scale
    return [
        SvgElement(
            "rect", _numbers(x=_LEFT, y=y, width=speed.mean * scale, height=_BAR, rx=2) | {"class": f"fill {colour}"}
        ),
        _line(low, middle, high, middle, "whisker"),
        _label(max(high, _LEFT + speed.mean * scale) + 5, y + _BAR - 2.5, f"{speed.mean:.1f}", "start", "figure"),
    ]


def _speedups(card: Card, peer: str) -> Chart | None:
    """A dot with its range per cell; 1 is as fast as the peer."""
    shown = [one for one in card.comparisons if one.peer == peer and one.decode]
    if not shown:
        return None
    ticks = _ticks(max(1.0, *(one.decode.max for one in shown if one.decode)))
    left = 96.0
    scale = (WIDTH - left - _RIGHT - 8) / ticks[-1]
    shapes: list[SvgElement] = []
    y = _TOP + 8
    temperature = shown[0].temperature
    for one in shown:
        y += _GROUP if one.temperature != temperature else 0.0
        temperature = one.temperature
        shapes += _range(one, left, y, scale)
        y += 22.0
    bottom = y - 6
    grid = [shape for tick in ticks for shape in _vertical(left + tick * scale, _TOP - 4, bottom, f"{tick:g}×")]
    grid.append(_line(left + scale, _TOP - 4, left + scale, bottom, "one"))
    first = card.servers[0].name
    over_plain = any(server.plain and server.name == peer for server in card.servers)
    return Chart(
        title="Speed-up by drafts" if over_plain else f"{first} over {peer}",
        summary="; ".join(f"{_cell(one)}: {one.decode.mean:.2f} times" for one in shown if one.decode),
        height=bottom + 22,
        shapes=(*grid, *shapes),
    )


def _range(one: ReportedComparison, left: float, y: float, scale: float) -> list[SvgElement]:
    ratio = one.decode
    assert ratio is not None
    whole = " whole" if one.workload is None else ""
    return [
        _label(left - 8, y + 4, _cell(one), "end", "name" + whole),
        _line(left + ratio.min * scale, y, left + ratio.max * scale, y, "range"),
        SvgElement("circle", _numbers(cx=left + ratio.mean * scale, cy=y, r=4.5) | {"class": "fill s0"}),
        _label(left + ratio.max * scale + 9, y + 4, f"{ratio.mean:.2f}×", "start", "figure" + whole),
    ]


def _cell(one: ReportedComparison) -> str:
    at_once = f" ×{one.concurrency}" if one.concurrency > 1 else ""
    return f"{one.workload or 'all'}, T {one.temperature:g}{at_once}"


def _loads(card: Card, temperature: float) -> Chart | None:
    """All requests together by how many run at once: the mean over kinds of work."""
    speeds: dict[str, dict[int, list[float]]] = {}
    for one in card.results:
        if one.temperature == temperature and one.total_tokens_per_second:
            by_load = speeds.setdefault(one.server, {})
            by_load.setdefault(one.concurrency, []).append(one.total_tokens_per_second.mean)
    curves = {name: [(load, fmean(by_load[load])) for load in sorted(by_load)] for name, by_load in speeds.items()}
    loads = sorted({load for points in curves.values() for load, _ in points})
    if len(loads) < 2:
        return None
    ticks = _ticks(max(speed for points in curves.values() for _, speed in points))
    plot = _Plot(right=24.0, most_x=math.log2(loads[-1]), most_y=ticks[-1])
    shapes = [*plot.rows(ticks, lambda speed: f"{speed:g}")]
    shapes += plot.columns([(math.log2(load), str(load)) for load in loads])
    colours = classes(card)
    for name, points in curves.items():
        shapes += plot.curve([(math.log2(load), speed) for load, speed in points], colours[name])
    return Chart(
        title=f"Tokens per second of all requests together, temperature {temperature:g}",
        summary="; ".join(
            f"{name}, {load} at once: {speed:.1f}" for name, points in curves.items() for load, speed in points
        ),
        height=plot.height,
        shapes=(*shapes, plot.caption("requests at once")),
        keys=_keys(curves, colours),
    )


def _acceptance(card: Card) -> Chart | None:
    shown = [one for one in card.acceptance if len(one.by_offset) > 1]
    if not shown:
        return None
    longest = min(_OFFSETS, max(len(one.by_offset) for one in shown))
    plot = _Plot(right=16.0, most_x=float(longest - 1), most_y=1.0)
    grid = [*plot.rows([0.0, 0.25, 0.5, 0.75, 1.0], lambda share: f"{share:.0%}")]
    grid += plot.columns([(float(at), str(at + 1)) for at in range(0, longest, 1 if longest <= 8 else 3)])
    curves: list[SvgElement] = []
    for index, one in enumerate(shown):
        points = [(float(at), share) for at, share in enumerate(one.by_offset[:longest])]
        weights = [count / max(one.reached[0], 1e-9) for count in one.reached[:longest]]
        curves += plot.curve(points, f"s{index % 5}", weights)
    return Chart(
        title="Accepted drafts by offset",
        summary="; ".join(f"{_series(card, one)}: {one.rate:.0%} of all" for one in shown),
        height=plot.height,
        shapes=(*grid, *curves, plot.caption("place in the chain of drafts; small dots: few got there")),
        keys=tuple((_series(card, one), f"s{index % 5}") for index, one in enumerate(shown)),
    )


def _series(card: Card, one: ReportedAcceptance) -> str:
    several = len({other.server for other in card.acceptance}) > 1
    return f"{one.server}, T {one.temperature:g}" if several else f"T {one.temperature:g}"


def _row_costs(verifier: ReportedVerifier) -> Chart | None:
    costs = sorted((rows, ms) for rows, ms in verifier.row_ms.items() if rows > 0 and ms > 0)
    if len(costs) < 2:
        return None
    ticks = _ticks(max(ms for _, ms in costs))
    plot = _Plot(right=24.0, most_x=math.log2(costs[-1][0]) or 1.0, most_y=ticks[-1])
    marks = [rows for rows, _ in costs if math.log2(rows).is_integer()] or [costs[0][0], costs[-1][0]]
    single = dict(costs).get(1)
    last = costs[-1]
    note = [plot.note(math.log2(last[0]), last[1], f"{last[1] / single:.1f} × one row")] if single else []
    return Chart(
        title=f"Time of a decode by its rows, {verifier.device or 'target'}",
        summary="; ".join(f"{rows} rows: {ms:.1f} ms" for rows, ms in costs),
        height=plot.height,
        shapes=(
            *plot.rows(ticks, lambda ms: f"{ms:g} ms"),
            *plot.columns([(math.log2(rows), str(rows)) for rows in marks]),
            *plot.curve([(math.log2(rows), ms) for rows, ms in costs], "s0"),
            *note,
            plot.caption("rows: tokens that one decode of the target checks"),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plot:
    right: float
    most_x: float
    most_y: float

    @property
    def height(self) -> float:
        return _TOP + _PLOT_HEIGHT + _BOTTOM

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = _LEFT + x / self.most_x * (WIDTH - _LEFT - self.right)
        return across, _TOP + (1 - y / self.most_y) * _PLOT_HEIGHT

    def rows(self, ticks: Iterable[float], name: Callable[[float], str]) -> list[SvgElement]:
        shapes = []
        for tick in ticks:
            _, y = self.at(0, tick)
            shapes += [_line(_LEFT, y, WIDTH - self.right, y, "grid"), _label(_LEFT - 7, y + 4, name(tick), "end")]
        return shapes

    def columns(self, marks: Iterable[tuple[float, str]]) -> list[SvgElement]:
        bottom = _TOP + _PLOT_HEIGHT + 15
        return [_label(self.at(x, 0)[0], bottom, text, "middle") for x, text in marks]

    def curve(
        self, points: Sequence[tuple[float, float]], colour: str, weights: Sequence[float] = ()
    ) -> list[SvgElement]:
        """A line with dots; those of less weight, up to 1, are smaller."""
        places = [self.at(x, y) for x, y in points]
        path = " ".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(places))
        radii = [1.0 + 3.0 * math.sqrt(weight) for weight in weights] or [3.0] * len(places)
        dots = [
            SvgElement("circle", _numbers(cx=x, cy=y, r=radius) | {"class": f"fill {colour}"})
            for (x, y), radius in zip(places, radii, strict=True)
        ]
        return [SvgElement("path", {"d": path, "class": f"curve {colour}"}), *dots]

    def note(self, x: float, y: float, text: str) -> SvgElement:
        across, down = self.at(x, y)
        return _label(across, down - 9, text, "end", "figure")

    def caption(self, text: str) -> SvgElement:
        return _label(WIDTH / 2 + 12, self.height - 3, text, "middle", "name")


def _ticks(top: float) -> list[float]:
    """Round values from 0 to just beyond `top`, three to six of them."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= rough)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def _vertical(x: float, top: float, bottom: float, text: str) -> list[SvgElement]:
    return [_line(x, top, x, bottom, "grid"), _label(x, bottom + 15, text, "middle")]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> SvgElement:
    return SvgElement("line", _numbers(x1=x1, y1=y1, x2=x2, y2=y2) | {"class": kind})


def _label(x: float, y: float, text: str, anchor: str, kind: str = "name") -> SvgElement:
    return SvgElement("text", _numbers(x=x, y=y) | {"text-anchor": anchor, "class": kind}, text)


def _numbers(**values: float) -> dict[str, str]:
    return {name: f"{value:.1f}" for name, value in values.items()}


def _keys(names: Iterable[str], colours: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, colours[name]) for name in dict.fromkeys(names))
