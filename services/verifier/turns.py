"""Decides how a target and the drafters on its own cores or device use them: in turns, or side by side. Pure.

*In turns* a drafter drafts with all cores what the verifier waits for and then rests, while the target decodes with all
cores. *Beside* each other the drafter runs ahead while the target decodes, each with its part of the cores. Measured
costs say which gives more tokens per millisecond. While nobody drafts, the target has all cores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.law.payoff import WORTH
from shared.law.speedup import RowCosts, ahead_speedup, expected_tokens

LOOK_EVERY: Final = 8  # rounds between two decisions
_TRY_EVERY: Final = 32  # decisions between two trials of the other mode, because only its use shows what it costs
_CLEARLY: Final = 1.05  # the other mode must give this many times as much, because estimates are noisy
_WIDTHS: Final = (1, 2, 3, 4, 6, 8, 12, 16)  # drafts per round that are compared
_SLOPE_ROWS: Final = 8  # drafts over which the price of one more row is averaged


class Mode(StrEnum):
    APART = ""  # no drafter computes where the target does
    TURNS = "turns"
    BESIDE = "beside"


@dataclass(frozen=True, slots=True)
class Crew:
    """Threads that the target may decode with, and what its rows cost with them."""

    threads: int
    costs: RowCosts


@dataclass(frozen=True, slots=True)
class Partner:
    """A drafter on the target's cores or device: how good it is, and its step in milliseconds in either mode."""

    acceptance: float
    hop_ms: float
    step_ms: float  # with all cores, while the target rests
    beside_step_ms: float  # with its part of them, while the target decodes
    fits: bool = True  # there are cores for both at the same time


def in_turns(partner: Partner, cost: Callable[[int], float], requests: int) -> float:
    """Tokens per millisecond of rounds that wait for their drafts."""
    return max(
        requests
        * expected_tokens(partner.acceptance, width)
        / (cost(requests * (width + 1)) + partner.hop_ms + width * partner.step_ms)
        for width in _WIDTHS
    )


def beside(partner: Partner, cost: Callable[[int], float], requests: int) -> float:
    """Tokens per millisecond if the drafter runs ahead while the target decodes."""

    def rows(count: int) -> float:
        return cost(requests * count)

    best = max(
        ahead_speedup(partner.acceptance, width, rows, partner.beside_step_ms, partner.hop_ms) for width in _WIDTHS
    )
    return best * requests / cost(requests)


class Turns:
    """The present mode, and the crew of the target in it."""

    def __init__(self, whole: Crew, part: Crew | None = None) -> None:
        """`part` is the target's crew beside a drafter; None: the same."""
        self.whole = whole
        self._part = part or whole
        self.mode = Mode.APART
        self._left = 0  # rounds until the next decision
        self._looks = 0

    def can_pay(self, partner: Partner) -> bool:
        """Whether a drafter like this would make a single request faster than the target is alone."""
        best = in_turns(partner, self.whole.costs, 1)
        if partner.fits:
            best = max(best, beside(partner, self._part.costs, 1))
        return best >= WORTH / self.whole.costs(1)

    def crew(self, drafting: bool) -> Crew:
        """Who computes the next decode; `drafting`: a drafter computes meanwhile on the same cores."""
        return self._part if drafting else self.whole

    @property
    def costs(self) -> RowCosts:
        """What rows cost in the present mode."""
        return self.crew(self.mode is Mode.BESIDE).costs

    def look(self, partner: Partner | None, requests: int) -> None:
        """Decide before the next round; `partner` is the best drafter that shares the cores, None if there is none."""
        if partner is None or not requests:
            self.mode, self._left = Mode.APART, 0
            return
        self._left -= 1
        if self.mode is not Mode.APART and self._left > 0:
            return
        self._left = LOOK_EVERY
        self._looks += 1
        self.mode = self._better(partner, requests)
        if partner.fits and not self._looks % _TRY_EVERY:
            self.mode = Mode.TURNS if self.mode is Mode.BESIDE else Mode.BESIDE

    def _better(self, partner: Partner, requests: int) -> Mode:
        if not partner.fits:
            return Mode.TURNS
        turns = in_turns(partner, self.whole.costs, requests)
        side_by_side = beside(partner, self._part.costs, requests)
        if self.mode is Mode.BESIDE:
            return Mode.TURNS if turns > _CLEARLY * side_by_side else Mode.BESIDE
        return Mode.BESIDE if side_by_side > _CLEARLY * turns else Mode.TURNS

    def worth(self, step_ms: float, rate: float, requests: int) -> float:
        """The lowest probability of being needed at which a draft pays for its step and its row.

        Everybody waits for both meanwhile, and a millisecond is worth `rate` tokens.
        """
        cost = self.whole.costs
        row_ms = (cost(requests + _SLOPE_ROWS) - cost(requests)) / _SLOPE_ROWS
        rate = max(rate, requests / cost(requests))
        return min(0.9, rate * (step_ms / requests + row_ms))
