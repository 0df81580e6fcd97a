"""The arithmetic of `draftmesh bench`. Pure.

Of one answer with n tokens:
  decode speed         (n - 1) / (last arrival - first arrival): prefill and waiting are left out
  time per token       its reciprocal, what vLLM calls TPOT
  inter-token latency  the gaps between bursts. Servers that speculate emit several tokens per decode, some as one event
                       and some as one event each; events within `BURST_S` count as one burst, so that both kinds of
                       server are measured alike. It is what a reader sees: mean gap = tokens per burst x time per token
  first token          from opening the request's connection to the first event with text (TTFT)
Of one turn (all requests at once): total tokens / time from the first request to the end of the last answer.
Ratios compare two servers on the same request (or turn) of one repetition; their mean is the geometric one.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from services.launcher.bench.acceptance import DraftCounts, pooled
from services.launcher.bench.plan import Cell
from services.launcher.bench.samples import AnswerSample, Load, Measurements, TimedAnswer

T = TypeVar("T", AnswerSample, Load)

# Events of one decode arrive within microseconds, and a decode of a large model takes longer than this.
BURST_S: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A mean of several values, and how far they lie apart; stdev is the sample's, 0 for a single value."""

    mean: float
    min: float
    max: float
    stdev: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """The middle and the worst hundredth, interpolated linearly."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One cell at one server. A value is None if no answer had it."""

    cell: Cell
    server: str
    answers: int
    failed: int
    tokens_per_second: Spread | None
    total_tokens_per_second: Spread | None
    first_token_ms: Percentiles | None
    time_per_token_ms: Percentiles | None
    inter_token_ms: Percentiles | None
    acceptance: DraftCounts | None
    tokens_per_round: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Geometric mean, smallest and largest of the ratios of `pairs` pairs."""

    mean: float
    min: float
    max: float
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The first server over `peer`; above 1, the first is faster in the speeds and slower in `first_token`."""

    cells: tuple[Cell, ...]
    peer: str
    decode: Ratio | None
    total: Ratio | None
    first_token: Ratio | None


def bursts(arrivals_s: Sequence[float]) -> list[float]:
    """The times of the bursts: arrivals within `BURST_S` of a burst's first one belong to it."""
    starts: list[float] = []
    for arrival in arrivals_s:
        if not starts or arrival - starts[-1] >= BURST_S:
            starts.append(arrival)
    return starts


def decode_speed(reply: TimedAnswer) -> float | None:
    """Tokens per second after the first; None for an answer that came in one piece."""
    elapsed = reply.arrivals_s[-1] - reply.arrivals_s[0]
    if len(bursts(reply.arrivals_s)) < 2 or reply.tokens < 2:
        return None
    return (reply.tokens - 1) / elapsed


def summaries(measured: Measurements, cells: Sequence[Cell], servers: Sequence[str]) -> list[Summary]:
    """A summary for every cell and server with data, in this order."""
    found = [_summary(measured, cell, server) for cell in cells for server in servers]
    return [one for one in found if one.answers or one.failed]


def _summary(measured: Measurements, cell: Cell, server: str) -> Summary:
    replies = [one.reply for one in measured.samples if one.cell == cell and one.server == server]
    loads = [one for one in measured.loads if one.cell == cell and one.server == server]
    speeds = [speed for reply in replies if (speed := decode_speed(reply)) is not None]
    gaps = [gap for reply in replies for gap in np.diff(bursts(reply.arrivals_s))]
    reports = [(reply.acceptance, reply.tokens) for reply in replies if reply.acceptance]
    acceptance = pooled(one for one, _ in reports)
    return Summary(
        cell=cell,
        server=server,
        answers=len(replies),
        failed=sum(one.cell == cell and one.server == server for one in measured.failures),
        tokens_per_second=spread(speeds),
        total_tokens_per_second=spread([load.tokens / load.seconds for load in loads]),
        first_token_ms=_percentiles(1000 * reply.first_token_s for reply in replies),
        time_per_token_ms=_percentiles(1000 / speed for speed in speeds),
        inter_token_ms=_percentiles(1000 * gap for gap in gaps),
        acceptance=acceptance,
        tokens_per_round=acceptance.tokens_per_round(sum(tokens for _, tokens in reports)) if acceptance else None,
    )


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of `values`; None without any."""
    if not values:
        return None
    return Spread(
        mean=statistics.fmean(values),
        min=min(values),
        max=max(values),
        stdev=statistics.stdev(values) if len(values) > 1 else 0.0,
        count=len(values),
    )


def _percentiles(values: Iterable[float]) -> Percentiles | None:
    values = list(values)
    if not values:
        return None
    p50, p99 = np.percentile(values, [50, 99])
    return Percentiles(p50=float(p50), p99=float(p99))


def comparisons(measured: Measurements, cells: Sequence[Cell], servers: Sequence[str]) -> list[Comparison]:
    """The first server against each other one: cell by cell, and over all workloads per temperature and concurrency."""
    first, *peers = servers
    answered = {one.cell for one in measured.samples}
    cells = [cell for cell in cells if cell in answered]
    groups: list[tuple[Cell, ...]] = []
    for concurrency, temperature in dict.fromkeys((cell.concurrency, cell.temperature) for cell in cells):
        alike = tuple(cell for cell in cells if (cell.concurrency, cell.temperature) == (concurrency, temperature))
        groups += [(cell,) for cell in alike] + [alike] * (len(alike) > 1)
    found = [_comparison(measured, group, first, peer) for peer in peers for group in groups]
    return [one for one in found if one.decode or one.total or one.first_token]


def _comparison(measured: Measurements, cells: tuple[Cell, ...], first: str, peer: str) -> Comparison:
    def request(one: AnswerSample) -> tuple[object, ...]:
        return (one.cell, one.repetition, one.index, one.step)

    answers = _pairs(measured.samples, cells, first, peer, request)
    turns = _pairs(measured.loads, cells, first, peer, lambda one: (one.cell, one.repetition))
    return Comparison(
        cells=cells,
        peer=peer,
        decode=ratio((decode_speed(one.reply), decode_speed(other.reply)) for one, other in answers),
        total=ratio((one.tokens / one.seconds, other.tokens / other.seconds) for one, other in turns),
        first_token=ratio((one.reply.first_token_s, other.reply.first_token_s) for one, other in answers),
    )


def _pairs(
    measured: Iterable[T], cells: tuple[Cell, ...], first: str, peer: str, key: Callable[[T], object]
) -> list[tuple[T, T]]:
    mine, others = (
        {key(one): one for one in measured if one.server == server and one.cell in cells} for server in (first, peer)
    )
    return [(one, others[which]) for which, one in mine.items() if which in others]


def ratio(pairs: Iterable[tuple[float | None, float | None]]) -> Ratio | None:
    """The first of each pair over the second, without pairs in which one is 0 or unknown; None without any."""
    ratios = [one / other for one, other in pairs if one and other]
    if not ratios:
        return None
    return Ratio(mean=statistics.geometric_mean(ratios), min=min(ratios), max=max(ratios), pairs=len(ratios))
