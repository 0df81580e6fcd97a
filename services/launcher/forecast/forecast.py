"""What `plan` adds to `shared.law.payoff`: speed-up by width, agreement with its interval, what would help most. Pure.

Intervals: Wilson 1927, 95 %.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from shared.law.payoff import MAX_WIDTH, Measurement, ahead, best, expected, ready, synchronous
from shared.law.speedup import RowCosts, ahead_speedup, expected_tokens

_Z: Final = 1.959964  # two-sided 95 % of a normal distribution
# A 27B model in Q8_0 on an AMD MI50, milliseconds: a published measurement (mxxm-t/mx-llama.cpp, issue 10).
_GPU: Final = "an AMD MI50's (27B, Q8_0)"
_GPU_MS: Final = {1: 47.6, 2: 57.0, 4: 63.7, 8: 94.5, 9: 153.0, 16: 159.0, 32: 168.0}


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the target's draw was among the drafter's best one, two, three guesses, of `judged` draws."""

    judged: int
    first: int
    second: int | None = None  # None: not known, as from the counters of a fleet
    third: int | None = None

    @property
    def alpha(self) -> float:
        return self.first / self.judged if self.judged else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Where alpha lies with 95 % confidence if draws are independent; (0, 1) if nothing was judged."""
        return wilson(self.first, self.judged)

    def __add__(self, other: "Agreement") -> "Agreement":
        if self.second is None or other.second is None or self.third is None or other.third is None:
            return Agreement(self.judged + other.judged, self.first + other.first)
        return Agreement(
            self.judged + other.judged,
            self.first + other.first,
            self.second + other.second,
            self.third + other.third,
        )


def wilson(hits: int, judged: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `hits` of `judged` were seen."""
    if not judged:
        return (0.0, 1.0)
    share, z2 = hits / judged, _Z * _Z
    centre = (share + z2 / (2 * judged)) / (1 + z2 / judged)
    half = _Z / (1 + z2 / judged) * math.sqrt(share * (1 - share) / judged + z2 / (4 * judged * judged))
    return (max(0.0, centre - half), min(1.0, centre + half))


@dataclass(frozen=True, slots=True)
class AtWidth:
    """Speed-ups over plain decoding at one width; `rows` is its decode's time in single steps."""

    width: int
    tokens: float
    rows: float
    synchronous: float
    ahead: float
    ready: float


def at_width(measured: Measurement, width: int) -> AtWidth:
    """Every formula at one width."""
    cost = measured.cost()
    return AtWidth(
        width=width,
        tokens=expected_tokens(measured.acceptance, width),
        rows=cost(width + 1) / cost(1),
        synchronous=synchronous(measured)(width),
        ahead=ahead(measured)(width),
        ready=ready(measured)(width),
    )


@dataclass(frozen=True, slots=True)
class Improvement:
    """One thing changed, and the speed-up that is then to be expected."""

    change: str
    speedup: float


def improvements(
    measured: Measurement, pair: float | None = None, cooler: tuple[float, float] | None = None
) -> list[Improvement]:
    """What raises the expected speed-up, each change alone, the best first; changes that bring nothing are left out.

    `pair` is how often one of two guesses hits; `cooler` another temperature and the acceptance measured at it.
    """
    now = _expected(measured)
    tried = _changes(measured, pair, cooler)
    found = [Improvement(change, speedup) for change, speedup in tried if speedup >= now * 1.005]
    return sorted(found, key=lambda improvement: -improvement.speedup)


def _changes(
    measured: Measurement, pair: float | None, cooler: tuple[float, float] | None
) -> Iterator[tuple[str, float]]:
    yield "a drafter twice as fast", _expected(replace(measured, draft_ms=measured.draft_ms / 2))
    nearer = (1.0 + measured.acceptance) / 2
    yield (
        f"a draft model that disagrees half as often (alpha {nearer:.2f})",
        _expected(replace(measured, alpha=nearer)),
    )
    yield f"rows as cheap as {_GPU}", _expected(replace(measured, row_ms=_cheaper_rows(measured.row_ms)))
    yield "no round trip to the drafter", _expected(replace(measured, round_trip_ms=0.0))
    if pair is not None:
        yield "a second guess at each place (a tree)", _with_second_guesses(measured, pair)
    if cooler:
        temperature, alpha = cooler
        yield f"temperature {temperature:g} (alpha {alpha:.2f})", _expected(replace(measured, alpha=alpha))


def _expected(measured: Measurement) -> float:
    return best(expected(measured)).speedup


def _cheaper_rows(row_ms: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    """The device's own step with the GPU's multiples of it, where those are lower."""
    own, gpu = RowCosts(dict(row_ms)), RowCosts(_GPU_MS)
    return tuple((rows, min(own(rows), own(1) * gpu(rows) / gpu(1))) for rows in range(1, MAX_WIDTH + 2))


def _with_second_guesses(measured: Measurement, pair: float) -> float:
    """A sibling beside every draft: it doubles the rows and saves one token of those that a miss costs."""
    costs = RowCosts(dict(measured.row_ms))

    def speedup(width: int) -> float:
        chain = ahead_speedup(
            measured.acceptance, width, lambda rows: costs(2 * rows - 1), measured.draft_ms, measured.round_trip_ms
        )
        return chain * (1.0 + pair - measured.acceptance)

    return max(best(speedup).speedup, _expected(measured))
