"""The arithmetic of speculation: expected tokens per round, speed-ups, the cost of rows. Pure.

A chain of g drafts, each accepted with probability a, gives E(a, g) = (1 - a^(g+1)) / (1 - a) tokens per round
(Leviathan et al. 2023). If drafts are always ready, the speed-up over plain decoding is E(a, g) / v(g + 1), where v is
the decode time by row count in units of one row. If drafting and verifying take turns, each round also takes g draft
steps and a round trip; a drafter that works ahead costs this time only after a miss.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping


def expected_tokens(alpha: float, width: int) -> float:
    """Tokens per round, the target's own included, for `width` drafts accepted with probability `alpha` each."""
    if not 0.0 <= alpha <= 1.0 or width < 0:
        raise ValueError(f"alpha {alpha} must lie in [0, 1] and width {width} must not be negative")
    if alpha == 1.0:
        return width + 1.0
    return float((1.0 - alpha ** (width + 1)) / (1.0 - alpha))


def alpha_of_counts(drafted: int, accepted: int, rounds: int) -> float:
    """The acceptance per token for which `rounds` chains of equal length give `accepted` of `drafted` tokens.

    It is above accepted / drafted, because drafts after a refused one also count as drafted.
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


def ready_speedup(alpha: float, width: int, cost: Callable[[int], float], step: float) -> float:
    """Speed-up over plain decoding if `width` drafts are ready whenever a decode begins: the ceiling for one chain.

    `cost(rows)` is the time of a decode and `step` that of a draft, in the same unit. A drafter makes at most one draft
    per step.
    """
    tokens = expected_tokens(alpha, width)
    return tokens * cost(1) / max(cost(width + 1), tokens * step)


def synchronous_speedup(
    alpha: float, width: int, cost: Callable[[int], float], step: float, round_trip: float
) -> float:
    """Speed-up over plain decoding if each round waits for its `width` drafts and a `round_trip` to the drafter."""
    return expected_tokens(alpha, width) * cost(1) / (cost(width + 1) + width * step + round_trip)


def ahead_speedup(alpha: float, width: int, cost: Callable[[int], float], step: float, round_trip: float) -> float:
    """Speed-up over plain decoding if one chain is drafted while the target decodes, `width` drafts a round.

    A run of accepted drafts has 1 / (1 - a) tokens on average and ends at a miss. Then the drafter starts again, and
    the target either waits for the first drafts or decodes one token plainly meanwhile, whichever is faster. Later
    rounds take as long as the slower of drafter and target. Times are in the same unit, as for `ready_speedup`.
    """
    miss, plain = 1.0 - alpha, cost(1)
    away = round_trip + step / 2  # the drafter finishes its running step first, on average half of it
    following = max(cost(width + 1), (width + 1) * step)  # a round within a run
    tokens = expected_tokens(alpha, width)
    # Time per token: the first round after a miss, weighted by the frequency of misses, and the rounds after it.
    hidden = miss * (plain + alpha * max(0.0, away + (width + 1) * step - plain)) + alpha * following / tokens
    waiting = (
        miss * (away + first * step + cost(first + 1)) + alpha ** (first + 1) * following / tokens
        for first in range(width + 1)
    )
    return plain / min(hidden, *waiting)


class RowCosts:
    """Decode time in milliseconds by row count: measured at a few counts, interpolated, and refined by each decode."""

    # Weight of a new decode: small, because outliers are more frequent than changes of the machine.
    _WEIGHT = 0.1

    def __init__(self, measured: Mapping[int, float]) -> None:
        """`measured` maps row counts to milliseconds and must hold at least one positive entry."""
        self.renew(measured)

    def renew(self, measured: Mapping[int, float]) -> None:
        """Forget the present times, and take `measured` instead."""
        if not measured or min(measured) < 1 or min(measured.values()) <= 0:
            raise ValueError("row costs need at least one row count with a positive time")
        self._counts = sorted(measured)
        self._ms = [measured[count] for count in self._counts]
        self._known: dict[int, float] = {}  # what a plan asks for again and again between two decodes

    def __call__(self, rows: int) -> float:
        """Milliseconds for one decode of `rows` rows; beyond the table extrapolated from its last two entries."""
        ms = self._known.get(rows)
        if ms is None:
            ms = self._known[rows] = self._interpolated(rows)
        return ms

    def _interpolated(self, rows: int) -> float:
        if len(self._counts) == 1:
            return self._ms[0] * max(1.0, rows / self._counts[0])
        upper = min(max(bisect_left(self._counts, rows), 1), len(self._counts) - 1)
        x0, x1, y0, y1 = self._counts[upper - 1], self._counts[upper], self._ms[upper - 1], self._ms[upper]
        return max(y0 + (y1 - y0) * (rows - x0) / (x1 - x0), self._ms[0])

    def rows_within(self, ms: float) -> int:
        """The most rows that one decode computes in `ms` milliseconds; at least 1."""
        return max(1, bisect_right(range(1, 1 << 20), ms, key=self))

    def observe(self, rows: int, ms: float) -> None:
        """Move the entries next to `rows` towards a decode that took `ms` milliseconds, as if within a factor of 2."""
        ratio = min(max(ms / self(rows), 0.5), 2.0)
        upper = min(bisect_left(self._counts, rows), len(self._counts) - 1)
        touched = {upper} if self._counts[upper] <= rows or upper == 0 else {upper - 1, upper}
        for index in touched:
            self._ms[index] *= 1.0 + self._WEIGHT * (ratio - 1.0)
        # More rows never cost less, so each entry is raised to the one before it.
        for index in range(1, len(self._ms)):
            self._ms[index] = max(self._ms[index], self._ms[index - 1])
        self._known.clear()

    @property
    def table(self) -> tuple[tuple[int, float], ...]:
        return tuple(zip(self._counts, self._ms, strict=True))
