"""Decides whether speculation pays, with what width, and why not, and says so in sentences for all commands. Pure.

Callers measure, `payoff` judges, `sentence` explains. The measured speed-up of recent rounds decides if there is one;
otherwise the formulas of `shared/law/speedup.py` do.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from shared.law.speedup import RowCosts, ahead_speedup, ready_speedup, synchronous_speedup

# Most drafts per request and round. Longer chains cost more than they add on all measured machines.
MAX_WIDTH: Final = 32
TYPICAL: Final = 0.7  # acceptance of a good draft model on chat
WORTH: Final = 1.05  # the smallest speed-up that counts, because noise hides smaller ones
LOCAL_MS: Final = 0.5  # round trip to another process on this machine

# Why a request or a fleet does not speculate.
OFF: Final = "speculation is off for this request"
SWITCHED_OFF: Final = "speculation is switched off"
NO_ROLLBACK: Final = "this model cannot take back rejected drafts"
NO_DRAFTER: Final = "no drafter is connected"
NO_DRAFT: Final = "no draft was ready in time"
TOO_LATE: Final = "drafts come too late"
TOO_DEAR: Final = "rows cost too much here, so even perfect drafts would not pay"
TOO_POOR: Final = "the drafts are accepted too seldom to pay for their rows"
NO_GAIN: Final = "the drafts are worth no more than the rows that they take"
UNDECODED: Final = "nothing decoded yet"
PREFILL: Final = "reading the prompt"

Cost = Callable[[int], float]  # rows of a decode to milliseconds
Formula = Callable[[int], float]  # drafts a round to speed-up over plain decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measurements of one target and its drafts. Times are in milliseconds; `row_ms` has decode times by rows.

    `alpha` is the measured acceptance; None: a typical one is assumed. `seen` is the measured speed-up over plain
    decoding in the last rounds; None unless they had drafts. `turns`: the drafter has the target's own cores or device,
    so each waits for the other.
    """

    row_ms: tuple[tuple[int, float], ...]
    can_roll_back: bool = True  # False: the model cannot take back rejected drafts
    alpha: float | None = None
    draft_ms: float = 0.0
    round_trip_ms: float = 0.0
    seen: float | None = None
    provisional: bool = False  # measured on a busy machine, and to be measured again
    turns: bool = False

    @property
    def acceptance(self) -> float:
        return TYPICAL if self.alpha is None else self.alpha

    def cost(self) -> Cost:
        """The decode time of every number of rows that one request may have in a round."""
        return _cost_table(self.row_ms)


@lru_cache(maxsize=256)
def _cost_table(row_ms: tuple[tuple[int, float], ...]) -> Cost:
    costs = RowCosts(dict(row_ms))
    return [costs(max(1, rows)) for rows in range(MAX_WIDTH + 2)].__getitem__


@dataclass(frozen=True, slots=True)
class Best:
    """The width with the highest speed-up over plain decoding; width 0 and speed-up 1.0 if none is worth it."""

    width: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Payoff:
    """The judgement. `reason` says why speculation does not pay; empty if it does.

    `width` and `expected` are for drafts made while the target decodes, `ceiling` for drafts that are always ready.
    `speedup` is the measured speed-up, or else `expected`.
    """

    width: int
    speedup: float
    expected: float
    ceiling: float
    reason: str


def synchronous(measured: Measurement) -> Formula:
    """The speed-up if drafting and verifying take turns, as on the same cores or card."""
    cost = measured.cost()
    return lambda width: synchronous_speedup(
        measured.acceptance, width, cost, measured.draft_ms, measured.round_trip_ms
    )


def ahead(measured: Measurement) -> Formula:
    """The speed-up if the drafter works while the target decodes, as on another device."""
    cost = measured.cost()
    return lambda width: ahead_speedup(measured.acceptance, width, cost, measured.draft_ms, measured.round_trip_ms)


def ready(measured: Measurement) -> Formula:
    """The speed-up if drafts are always ready when a decode begins: the ceiling."""
    cost = measured.cost()
    return lambda width: ready_speedup(measured.acceptance, width, cost, measured.draft_ms)


def expected(measured: Measurement) -> Formula:
    """The speed-up of the way in which these two work together."""
    return synchronous(measured) if measured.turns else ahead(measured)


def best(speedup: Formula) -> Best:
    """The width with the highest speed-up."""
    found = max((Best(width, speedup(width)) for width in range(1, MAX_WIDTH + 1)), key=lambda one: one.speedup)
    return found if found.speedup >= WORTH else Best(0, 1.0)


def perfect_drafts_pay(cost: Cost, most: int, worth: float, requests: int = 1, other_rows: int = 0) -> bool:
    """Whether up to `most` drafts that are all accepted give more than `worth` times the speed of plain decoding.

    Each decode also has one row for each of the `requests`, and `other_rows` rows that give no token.
    """
    plain = requests / cost(requests + other_rows)
    return any(
        (requests + drafts) / cost(requests + drafts + other_rows) > worth * plain for drafts in range(1, most + 1)
    )


@lru_cache(maxsize=1024)
def payoff(measured: Measurement) -> Payoff:
    """Judge whether speculation pays. `row_ms` must hold at least one positive time."""
    if not measured.can_roll_back:
        return Payoff(0, 1.0, 1.0, 1.0, NO_ROLLBACK)
    found, ceiling = best(expected(measured)), best(ready(measured))
    reason = "" if found.width else _obstacle(measured)
    speedup = found.speedup
    if measured.seen is not None:
        speedup = measured.seen
        reason = "" if speedup >= WORTH else reason or NO_GAIN
    return Payoff(found.width, speedup, found.speedup, ceiling.speedup, reason)


def _obstacle(measured: Measurement) -> str:
    cost = measured.cost()
    if not perfect_drafts_pay(cost, MAX_WIDTH, WORTH):
        return f"{TOO_DEAR} ({row_price(measured)})"
    needed = _needed_acceptance(measured)
    if measured.acceptance < needed:
        a_typical = "a typical " if measured.alpha is None else ""
        return f"{TOO_POOR} ({a_typical}acceptance is {measured.acceptance:.2f}, and {needed:.2f} is needed)"
    step, away = measured.draft_ms / cost(1), measured.round_trip_ms / cost(1)
    return f"{TOO_LATE} (one takes {step:.2f} of the target's step, the round trip {away:.2f})"


def _needed_acceptance(measured: Measurement) -> float:
    """The lowest acceptance, in steps of 0.01, at which drafts that are always ready pay; 1 if none does."""

    def pays(percent: int) -> bool:
        return best(ready(replace(measured, alpha=percent / 100, draft_ms=0.0))).width > 0

    return bisect_left(range(100), True, key=pays) / 100


def row_price(measured: Measurement) -> str:
    """The cost of 8 rows in words; if 8 was not measured, of the next larger count, or else of the largest."""
    counts = [rows for rows, _ in measured.row_ms]
    rows = min((count for count in counts if count >= 8), default=max(counts))
    return f"{rows} rows cost {dict(measured.row_ms)[rows] / measured.cost()(1):.1f} single steps"


def sentence(measured: Measurement) -> str:
    """One sentence for people: whether speculation pays, how much and with what width, or why not."""
    if not measured.row_ms:
        return "whether speculation pays is not measured yet"
    later = " (measured on a busy machine; will measure again)" if measured.provisional else ""
    found = payoff(measured)
    if found.reason:
        demo = "; `draftmesh demo` shows where it does" if measured.alpha is None else ""
        return f"speculation does not pay here: {found.reason}{demo}{later}"
    parts = []
    if measured.seen is not None:
        parts.append(f"{found.speedup:.2f}x plain decoding in the last rounds")
    if found.width:
        up_to = "up to " if measured.alpha is None else ""
        a_typical = "a typical " if measured.alpha is None else ""
        at = f"with {found.width} drafts a round at {a_typical}acceptance of {measured.acceptance:.2f}"
        parts.append(f"expect {up_to}{found.expected:.2f}x plain decoding {at} ({row_price(measured)})")
        if found.ceiling >= found.expected + 0.005:
            parts.append(f"{found.ceiling:.2f}x if drafts were always ready")
    return f"speculation pays here: {'; '.join(parts)}{later}"
