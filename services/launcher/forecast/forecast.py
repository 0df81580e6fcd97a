"""What speculation will bring, from measurements: speed-up by width, what would raise it most, why it cannot pay. Pure.

Formulas: `shared/law/speedup.py`. Intervals: Wilson 1927, 95 %.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from services.launcher.forecast.payoff import LIMIT, WORTH
from shared.law.speedup import RowCosts, ahead_speedup, expected_tokens, ready_speedup, synchronous_speedup

Formula = Callable[[int], float]  # width to speed-up

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


def alpha_of_counts(drafted: int, accepted: int, rounds: int) -> float:
    """The acceptance per token that gives `accepted` of `drafted` tokens in `rounds` chains of equal length.

    Drafts behind a refused one count as drafted, so that accepted / drafted lies below it.
    """
    if not rounds or not accepted:
        return 0.0
    width, wanted = drafted / rounds, accepted / rounds

    def accepted_at(alpha: float) -> float:
        whole = int(width)
        return expected_tokens(alpha, whole) - 1.0 + (width - whole) * alpha ** (whole + 1)

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if accepted_at(middle) < wanted else (low, middle)
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One target, one drafter, one temperature. Times in milliseconds; `pair` is how often one of two guesses hits."""

    alpha: float
    row_ms: Mapping[int, float]
    draft_ms: float
    round_trip_ms: float
    pair: float | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """The width with the highest speed-up over plain decoding; width 0 and 1.0 where none is worth it."""

    width: int
    speedup: float


@dataclass(frozen=True, slots=True)
class AtWidth:
    """Speed-ups over plain decoding at one width; `rows` is its decode's time in single steps."""

    width: int
    tokens: float
    rows: float
    synchronous: float
    ahead: float
    ready: float


def at_width(situation: Situation, width: int) -> AtWidth:
    """Every formula at one width."""
    costs = RowCosts(situation.row_ms)
    return AtWidth(
        width=width,
        tokens=expected_tokens(situation.alpha, width),
        rows=costs(width + 1) / costs(1),
        synchronous=_synchronous(situation)(width),
        ahead=_ahead(situation)(width),
        ready=_ready(situation)(width),
    )


def synchronous(situation: Situation) -> Best:
    """Draft, verify, draft: what a draft model inside the target's process would reach at best."""
    return _best(_synchronous(situation))


def ahead(situation: Situation) -> Best:
    """Drafting while the target decodes: what to expect here."""
    return _best(_ahead(situation))


def ready(situation: Situation) -> Best:
    """Drafts always there when a decode begins: the ceiling."""
    return _best(_ready(situation))


def _synchronous(situation: Situation) -> Formula:
    costs = RowCosts(situation.row_ms)
    return lambda width: synchronous_speedup(situation.alpha, width, costs, situation.draft_ms, situation.round_trip_ms)


def _ahead(situation: Situation) -> Formula:
    costs = RowCosts(situation.row_ms)
    return lambda width: ahead_speedup(situation.alpha, width, costs, situation.draft_ms, situation.round_trip_ms)


def _ready(situation: Situation) -> Formula:
    costs = RowCosts(situation.row_ms)
    return lambda width: ready_speedup(situation.alpha, width, costs, situation.draft_ms)


def _best(speedup: Formula) -> Best:
    width = max(range(1, LIMIT + 1), key=speedup)
    return Best(width, speedup(width)) if speedup(width) >= WORTH else Best(0, 1.0)


# ---------------------------------------------------------------- what would help


@dataclass(frozen=True, slots=True)
class Improvement:
    """One thing changed, and the speed-up that is then to be expected."""

    change: str
    speedup: float


def improvements(situation: Situation, cooler: tuple[float, float] | None = None) -> list[Improvement]:
    """What raises the expected speed-up, each change alone, the best first; changes that bring nothing are left out.

    `cooler` is another temperature and the acceptance that was measured at it.
    """
    now = ahead(situation).speedup
    tried = [*_changes(situation), *_cooler(situation, cooler)]
    found = [Improvement(change, speedup) for change, speedup in tried if speedup >= now * 1.005]
    return sorted(found, key=lambda improvement: -improvement.speedup)


def _changes(situation: Situation) -> Iterator[tuple[str, float]]:
    yield "a drafter twice as fast", ahead(replace(situation, draft_ms=situation.draft_ms / 2)).speedup
    nearer = (1.0 + situation.alpha) / 2
    yield (
        f"a draft model that disagrees half as often (alpha {nearer:.2f})",
        ahead(replace(situation, alpha=nearer)).speedup,
    )
    yield f"rows as cheap as {_GPU}", ahead(replace(situation, row_ms=_cheaper_rows(situation.row_ms))).speedup
    yield "no round trip to the drafter", ahead(replace(situation, round_trip_ms=0.0)).speedup
    if situation.pair is not None:
        yield "a second guess at each place (a tree)", _with_second_guesses(situation, situation.pair)


def _cooler(situation: Situation, cooler: tuple[float, float] | None) -> Iterator[tuple[str, float]]:
    if cooler:
        temperature, alpha = cooler
        yield (
            f"temperature {temperature:g} (alpha {alpha:.2f})",
            ahead(replace(situation, alpha=alpha)).speedup,
        )


def _cheaper_rows(row_ms: Mapping[int, float]) -> dict[int, float]:
    """The device's own step with the GPU's multiples of it, where those are lower."""
    own, gpu = RowCosts(row_ms), RowCosts(_GPU_MS)
    counts = sorted({*row_ms, *range(1, LIMIT + 2)})
    return {count: min(own(count), own(1) * gpu(count) / gpu(1)) for count in counts}


def _with_second_guesses(situation: Situation, pair: float) -> float:
    """A sibling beside every draft: it doubles the rows and saves one token of those that a miss costs."""
    costs = RowCosts(situation.row_ms)

    def speedup(width: int) -> float:
        chain = ahead_speedup(
            situation.alpha,
            width,
            lambda rows: costs(2 * rows - 1),
            situation.draft_ms,
            situation.round_trip_ms,
        )
        return chain * (1.0 + pair - situation.alpha)

    return max(_best(speedup).speedup, ahead(situation).speedup)


# ---------------------------------------------------------------- in a sentence


def verdict(situation: Situation) -> str:
    """One sentence for people: what to expect, or why speculation cannot pay."""
    costs = RowCosts(situation.row_ms)
    step_ms = costs(1)
    expected, ceiling = ahead(situation), ready(situation)
    if expected.width:
        return (
            f"expect {expected.speedup:.2f}x plain decoding with {expected.width} drafts a round; "
            f"{ceiling.speedup:.2f}x if drafts were always ready"
        )
    if not ready(replace(situation, alpha=1.0, draft_ms=0.0)).width:
        cost = costs(LIMIT + 1) / step_ms
        return (
            f"speculation cannot pay: {LIMIT + 1} rows cost {cost:.1f} single steps, so even perfect drafts would not"
        )
    if not ready(replace(situation, draft_ms=0.0)).width:
        return (
            f"speculation cannot pay: acceptance {situation.alpha:.2f} is too low for what rows cost here; "
            f"from {_needed_alpha(situation):.2f} on it would, with drafts that are always ready"
        )
    return (
        f"speculation cannot pay: drafts come too late (one takes {situation.draft_ms / step_ms:.2f} of the target's "
        f"step, the round trip {situation.round_trip_ms / step_ms:.2f})"
    )


def _needed_alpha(situation: Situation) -> float:
    return next(
        (percent / 100 for percent in range(100) if ready(replace(situation, alpha=percent / 100, draft_ms=0.0)).width),
        1.0,
    )
