"""How long a decode takes by its number of rows: the one way in which verifier, drafters and commands measure it."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from shared.model.rows import Rows
from shared.model.target import Target

ROW_COUNTS: Final = (1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32)
# Any text will do; a mixture of experts reads more of itself for real text than for repetitions. Long enough to cross
# llama.cpp's kernel borders.
PROBE_TEXT: Final = (
    "The harbour master kept two books. In the first he wrote what every ship declared: grain, copper, salted fish, "
    "forty bolts of linen. In the second he wrote what he believed, and over the years the second book grew thicker. "
    "def total(items):\n    return sum(item.price * item.count for item in items)\n"
)
_PASSES: Final = 4
BUDGET_S: Final = 4.0  # where a decode takes long, noise of a few milliseconds matters little, and people wait
_CONTEXT: Final = 32  # tokens that the rows stand on; a short context is where extra rows are cheapest to judge


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
    """Milliseconds of a decode by row count: the fastest of a few.

    The minimum is the rule for noise, and not the median: what disturbs a decode (other processes, interrupts, a clock
    that is not up yet) only ever makes it longer, so the fastest one is nearest to what rows cost, and a disturbance
    may hit all but one. For the same reason a count is never said to cost more than a larger one, and the first decode
    of each, which warms up, needs no exception. Counts take turns: a slow moment does not hit one of them alone.

    `tokens` is some text of the target's; a short one gives fewer counts. `read` is told the rows after each decode and
    is timed with it. Counts whose rows would take over `longest_ms` at the price of a single one are left out. Every
    count is measured once; when `budget_s` is spent, no more is. The first sequence must be free, and is so after.
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
    """More rows never cost less. What says so is noise, and noise only ever adds, so the smaller time is the truth."""
    least = math.inf
    lowered = {count: (least := min(least, costs[count])) for count in sorted(costs, reverse=True)}
    return {count: lowered[count] for count in sorted(costs)}


def _decode(target: Target, tokens: Sequence[int], start: int, count: int, *, output: bool) -> None:
    """Decode `count` tokens from `start` on; what rows stand on needs no logits."""
    rows = Rows()
    for position in range(start, start + count):
        rows.add(tokens[position], position, (0,), output)
    target.decode(rows)
