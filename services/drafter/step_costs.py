"""What a draft model's steps cost by the number of rows, and how many rows a step is worth.

On a GPU eight rows cost little more than one; on a CPU two may cost three times one. Only a measurement tells.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from shared.law import sampling
from shared.model.rows import Rows
from shared.model.target import Target
from shared.wire.messages import Sampling

ROW_COUNTS: Final = (1, 2, 4, 8)
# Any text will do; a mixture of experts reads more of itself for real text than for repetitions.
PROBE_TEXT: Final = (
    "Before the ferry left she counted the crates again: nineteen of glass, two of seed potatoes, one that nobody"
    " had ordered. `crates = [crate for crate in hold if crate.owner]`"
)
_REPEATS: Final = 3  # the first decode of each size warms up
_LONGER: Final = 1.5  # times that further rows may make a step longer: what a verifier decided waits for its end
_LONGEST_MS: Final = 80.0  # as long as a step may take if rows cost the same each; slower models have dear rows anyway
_BUDGET_S: Final = 1.0  # of a start, on a busy machine


def measure(
    target: Target, tokens: Sequence[int], ranks: int, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Milliseconds of a step by rows, with the draws of `ranks` tokens from each: the fastest of a few, as noise adds.

    `tokens` is some text of the target's. Takes some quarter of a second; a second and two decodes on a busy machine.
    Leaves the first sequence, which must be free, empty. A slow model or a short text give fewer counts.
    """
    start = max(1, min(16, len(tokens) - ROW_COUNTS[-1]))
    most = min(len(tokens) - start, target.max_rows, target.n_ctx - start)
    _decode(target, tokens, 0, start, output=False)
    fastest: dict[int, float] = {}
    end = clock() + _BUDGET_S
    for count in ROW_COUNTS:
        if count > most or (fastest and count * fastest[1] > _LONGEST_MS):
            break
        times: list[float] = []
        while len(times) < _REPEATS and (clock() < end or (not (fastest or times))):
            before = clock()
            _decode(target, tokens, start, count)
            for row in range(count):
                sampling.ranked(target.logits(row), Sampling(seed=0), None, row, ranks)
            times.append((clock() - before) * 1000)
            target.truncate(0, start)
        if times:
            fastest[count] = min(times)
    target.truncate(0, 0)
    return fastest


def _decode(target: Target, tokens: Sequence[int], start: int, count: int, *, output: bool = True) -> None:
    """Decode `count` tokens from `start` on; a step wants the logits of its rows, and what it stands on none."""
    rows = Rows()
    for position in range(start, start + count):
        rows.add(tokens[position], position, (0,), output)
    target.decode(rows)


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
