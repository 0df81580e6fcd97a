"""What a draft model's steps cost by the number of rows, and how many rows a step is worth.

On a GPU eight rows cost little more than one; on a CPU two may cost three times one. Only a measurement tells.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from shared.law import sampling
from shared.model import row_costs
from shared.model.target import Target
from shared.wire.messages import Sampling

ROW_COUNTS: Final = (1, 2, 4, 8)
_LONGER: Final = 1.5  # times that further rows may make a step longer: what a verifier decided waits for its end
_LONGEST_MS: Final = 80.0  # as long as a step may take if rows cost the same each; slower models have dear rows anyway
_BUDGET_S: Final = 1.0  # of a start, on a busy machine


def measure(
    target: Target, tokens: Sequence[int], ranks: int, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Milliseconds of a step by rows, with the draws of `ranks` tokens from each, as `row_costs.measure` takes it.

    Takes some quarter of a second; on a busy machine each count is decoded once, and again only within a second. A slow
    model or a short text gives fewer counts. The first sequence must be free, and is so after.
    """

    def read(rows: int) -> None:
        for row in range(rows):
            sampling.ranked(target.logits(row), Sampling(seed=0), None, row, ranks)

    return row_costs.measure(
        target, tokens, ROW_COUNTS, read=read, longest_ms=_LONGEST_MS, budget_s=_BUDGET_S, clock=clock
    )


def worth(expected: float, more: Sequence[float], rows: int, cost: Callable[[int], float]) -> int:
    """How many further rows to add to a step of `rows` rows so that it makes the most useful guesses per time.

    A row is useful if the target gets to its token: `expected` rows are so far, and `more` holds the probabilities of
    further ones, likeliest first. `cost` is a step's milliseconds by rows, which must not grow by more than a half.
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
