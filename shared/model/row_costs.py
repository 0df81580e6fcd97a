"""Measures the time of a decode by its number of rows, for verifiers, drafters and commands."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from shared.model.rows import Rows
from shared.model.target import Target

ROW_COUNTS: Final = (1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32)
# Real text, because a mixture of experts uses fewer experts for repetitions; long enough for all of llama.cpp's
# kernels.
PROBE_TEXT: Final = (
    "The harbour master kept two books. In the first he wrote what every ship declared: grain, copper, salted fish, "
    "forty bolts of linen. In the second he wrote what he believed, and over the years the second book grew thicker. "
    "def total(items):\n    return sum(item.price * item.count for item in items)\n"
)
_PASSES: Final = 4
BUDGET_S: Final = 4.0  # longest measurement: people wait, and if a decode takes long, a few milliseconds matter little
_CONTEXT: Final = 32  # tokens before the rows; extra rows after a short context are quick to measure


def measure(
    target: Target,
    tokens: Sequence[int],
    counts: Sequence[int] = ROW_COUNTS,
    *,
    read: Callable[[int], object] = lambda rows: None,
    longest_ms: float = math.inf,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Milliseconds of a decode by row count: the minimum of a few decodes.

    The minimum and not the median, because disturbances (other processes, interrupts, a low clock rate, the first
    decode) only ever make a decode longer. For the same reason no count is said to cost more than a larger one. Counts
    take turns, so that a slow moment does not hit one count alone.

    `tokens` is some text; a short one gives fewer counts. `read` is called with the rows after each decode and timed
    with it. Counts that would take over `longest_ms` at the price of a single row are left out. Every count is measured
    once; after `budget_s` seconds no more. The first sequence must be empty, and is left empty.
    """
    start = max(1, min(_CONTEXT, len(tokens) // 3, target.max_rows))
    most = min(len(tokens) - start, target.max_rows, target.n_ctx - start)

    def decode(count: int) -> float:
        began = clock()
        _decode(target, tokens, start, count, output=True)
        read(count)
        took = (clock() - began) * 1000
        held = target.truncate(0, start if target.can_roll_back else 0)
        if held < start:  # some models cannot drop the last tokens alone
            _decode(target, tokens, held, start - held, output=False)
        return took

    _decode(target, tokens, 0, start, output=False)
    end = clock() + budget_s
    fastest: dict[int, float] = {}
    for repeat in range(_PASSES):
        for count in counts:
            spent = repeat > 0 and clock() >= end
            if count <= most and count * fastest.get(1, 0.0) <= longest_ms and not spent:
                fastest[count] = min(decode(count), fastest.get(count, math.inf))
    target.truncate(0, 0)
    return rising(fastest)


def rising(costs: Mapping[int, float]) -> dict[int, float]:
    """The costs, none above that of a larger count: noise only ever adds time, so the smaller time is right."""
    least = math.inf
    lowered = {count: (least := min(least, costs[count])) for count in sorted(costs, reverse=True)}
    return {count: lowered[count] for count in sorted(costs)}


def _decode(target: Target, tokens: Sequence[int], start: int, count: int, *, output: bool) -> None:
    rows = Rows()
    for position in range(start, start + count):
        rows.add(tokens[position], position, (0,), output)
    target.decode(rows)
