"""What speculation is worth: expected tokens per round, speed-ups, the cost of rows. Pure.

E(a, g) = (1 - a^(g+1)) / (1 - a) tokens per round for a chain of g drafts, each accepted with probability a
(Leviathan et al. 2023). With drafts always ready the speed-up over plain decoding is E(a, g) / v(g + 1), where v is
the decode time by row count in units of one row. Drafting first and verifying then adds g draft steps and a round trip
to every round; a drafter that runs ahead pays them after a miss alone.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping


def expected_tokens(alpha: float, width: int) -> float:
    """Tokens per round, the target's own included, for `width` drafts accepted with probability `alpha` each."""
    if not 0.0 <= alpha <= 1.0 or width < 0:
        raise ValueError(f"alpha {alpha} must lie in [0, 1] and width {width} must not be negative")
    if alpha == 1.0:
        return width + 1.0
    return float((1.0 - alpha ** (width + 1)) / (1.0 - alpha))


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


def ready_speedup(alpha: float, width: int, cost: Callable[[int], float], step: float) -> float:
    """Speed-up over plain decoding if `width` drafts are ready whenever a decode begins: the ceiling of one chain.

    `cost(rows)` is a decode's time and `step` a draft's, in one unit. One drafter gives one draft per step at most.
    """
    tokens = expected_tokens(alpha, width)
    return tokens * cost(1) / max(cost(width + 1), tokens * step)


def synchronous_speedup(
    alpha: float, width: int, cost: Callable[[int], float], step: float, round_trip: float
) -> float:
    """Speed-up over plain decoding if each round waits for its `width` drafts and a `round_trip` to the drafter."""
    return expected_tokens(alpha, width) * cost(1) / (cost(width + 1) + width * step + round_trip)


def ahead_speedup(alpha: float, width: int, cost: Callable[[int], float], step: float, round_trip: float) -> float:
    """Speed-up over plain decoding with one chain drafted while the target decodes, `width` drafts a round.

    A run of accepted drafts ends at a miss, 1 / (1 - a) tokens after the last one. The drafter then starts anew, and
    the target either waits for its first drafts or decodes one token plainly meanwhile, whichever is better; later
    rounds take as long as the slower of the two. Times are in one unit, as for `ready_speedup`.
    """
    miss, plain = 1.0 - alpha, cost(1)
    away = round_trip + step / 2  # the news finds the drafter within a step, which it ends first
    following = max(cost(width + 1), (width + 1) * step)  # a round within a run
    tokens = expected_tokens(alpha, width)
    # Time per token: the first round after a miss, weighted by how often there is one, and the rounds after it.
    hidden = miss * (plain + alpha * max(0.0, away + (width + 1) * step - plain)) + alpha * following / tokens
    waiting = (
        miss * (away + first * step + cost(first + 1)) + alpha ** (first + 1) * following / tokens
        for first in range(width + 1)
    )
    return plain / min(hidden, *waiting)


class RowCosts:
    """Decode time in milliseconds by row count: measured at a few counts, interpolated between, refined as it runs."""

    # A decode is an outlier more often than the machine changes; this forgets within some twenty rounds.
    _WEIGHT = 0.1

    def __init__(self, measured: Mapping[int, float]) -> None:
        """`measured` maps row counts to milliseconds and must hold at least one positive entry."""
        if not measured or min(measured) < 1 or min(measured.values()) <= 0:
            raise ValueError("row costs need at least one row count with a positive time")
        self._counts = sorted(measured)
        self._ms = [measured[count] for count in self._counts]

    def __call__(self, rows: int) -> float:
        """Milliseconds for one decode of `rows` rows; beyond the table by the slope of its end."""
        if len(self._counts) == 1:
            return self._ms[0] * max(1.0, rows / self._counts[0])
        upper = min(max(bisect_left(self._counts, rows), 1), len(self._counts) - 1)
        x0, x1, y0, y1 = self._counts[upper - 1], self._counts[upper], self._ms[upper - 1], self._ms[upper]
        return max(y0 + (y1 - y0) * (rows - x0) / (x1 - x0), self._ms[0])

    def rows_within(self, ms: float) -> int:
        """The most rows that one decode computes in `ms`; at least one."""
        low, high = 1, 2
        while self(high) <= ms and high < 1 << 20:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self(middle) <= ms else (low, middle)
        return low

    def observe(self, rows: int, ms: float) -> None:
        """Move the entries next to `rows` towards a decode that took `ms`; outliers move them no further than twice."""
        ratio = min(max(ms / self(rows), 0.5), 2.0)
        upper = min(bisect_left(self._counts, rows), len(self._counts) - 1)
        touched = {upper} if self._counts[upper] <= rows or upper == 0 else {upper - 1, upper}
        for index in touched:
            self._ms[index] *= 1.0 + self._WEIGHT * (ratio - 1.0)
        # More rows never cost less: an entry that fell behind is lifted, one that ran ahead lifts those after it.
        for index in range(1, len(self._ms)):
            self._ms[index] = max(self._ms[index], self._ms[index - 1])

    @property
    def table(self) -> tuple[tuple[int, float], ...]:
        return tuple(zip(self._counts, self._ms, strict=True))
