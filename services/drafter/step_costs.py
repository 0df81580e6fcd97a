"""Measures the time of a draft model's steps by rows, and decides how many rows a step should have.

On a GPU eight rows cost little more than one; on a CPU two rows may cost three times as much as one.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from shared.law import draws
from shared.model import row_costs
from shared.model.target import Target
from shared.wire.messages import Sampling

ROW_COUNTS: Final = (1, 2, 4, 8)
_LONGER: Final = 1.5  # most that further rows may lengthen a step, because commits wait for its end
_LONGEST_MS: Final = 80.0  # row counts that would take longer at the price of one row are not measured
_BUDGET_S: Final = 1.0  # longest measurement on a busy machine


def measure(
    target: Target,
    tokens: Sequence[int],
    ranks: int,
    clock: Callable[[], float] = time.perf_counter,
    counts: Sequence[int] = ROW_COUNTS,
) -> dict[int, float]:
    """Milliseconds of a step by rows, each with the draws of `ranks` tokens, as `row_costs.time_rows` measures them.

    Takes about a quarter of a second, on a busy machine up to a second or one decode per count. A slow model or a short
    text gives fewer counts. The first sequence must be empty, and is left empty.
    """

    def read(rows: int) -> None:
        for row in range(rows):
            draws.ranked(target.logits(row), Sampling(seed=0), None, row, ranks)

    return row_costs.time_rows(
        target, tokens, counts, read=read, longest_ms=_LONGEST_MS, budget_s=_BUDGET_S, clock=clock
    ).costs


def worth(expected: float, more: Sequence[float], rows: int, cost: Callable[[int], float]) -> int:
    """How many rows to add to a step of `rows` rows to get the most useful guesses per time.

    A row is useful if the target reaches its token: `expected` of the present rows are, and `more` has the probability
    of each further row, in descending order. `cost` gives a step's milliseconds by rows. The step gets at most
    half as long again.
    """
    best, best_rate = 0, expected / cost(rows)
    for number, reach in enumerate(more, start=1):
        time_ms = cost(rows + number)
        if time_ms > _LONGER * cost(rows):
            break
        expected += reach
        rate = expected / time_ms
        if rate > best_rate:
            best, best_rate = number, rate
    return best
