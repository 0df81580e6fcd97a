"""Measures the time of a decode by its number of rows, for verifiers, drafters and commands."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from shared.machine.load import CpuTime, is_contended
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
NOISY: Final = 0.25  # where the two fastest decodes of a count differ by more, the machine is not at rest
BUDGET_S: Final = 4.0  # longest measurement: people wait, and if a decode takes long, a few milliseconds matter little
_CONTEXT: Final = 32  # tokens before the rows; extra rows after a short context are quick to measure


@dataclass(frozen=True, slots=True)
class RowTimes:
    """What decodes took. `ms` has the milliseconds of each by row count."""

    ms: Mapping[int, Sequence[float]]
    contended: bool = False  # other programs took processor time meanwhile

    @property
    def costs(self) -> dict[int, float]:
        """Milliseconds of a decode by row count: the fastest of each, and none above that of a larger count."""
        return rising({count: min(times) for count, times in self.ms.items()})

    @property
    def noise(self) -> float:
        """By how much the second fastest decode of a count was slower than the fastest, at most: 0.1 is 10 %.

        On a machine at rest the two hardly differ. Counts that were measured once say nothing.
        """
        pairs = [sorted(times)[:2] for times in self.ms.values() if len(times) > 1]
        return max((second / first - 1.0 for first, second in pairs), default=0.0)

    @property
    def is_noisy(self) -> bool:
        """Whether something else used the machine, so that the costs may be wrong."""
        return self.contended or self.noise > NOISY


def time_rows(
    target: Target,
    tokens: Sequence[int],
    counts: Sequence[int] = ROW_COUNTS,
    *,
    read: Callable[[int], object] = lambda rows: None,
    longest_ms: float = math.inf,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.perf_counter,
    told: Callable[[float], object] = lambda share: None,
    stop: Callable[[], bool] = lambda: False,
    sequence: int = 0,
    cpu: Callable[[], CpuTime | None] = lambda: None,
) -> RowTimes:
    """Times a few decodes of each row count.

    The cost is the minimum and not the median, because disturbances (other processes, interrupts, a low clock rate, the
    first decode) only ever make a decode longer. For the same reason no count is said to cost more than a larger one.
    Counts take turns, so that a slow moment does not hit one count alone.

    `tokens` is some text; a short one gives fewer counts. `read` is called with the rows after each decode and timed
    with it. Counts that would take over `longest_ms` at the price of a single row are left out. Every count is measured
    once and the first twice; after `budget_s` seconds no more. `told` gets the share that is done after each decode;
    once `stop` is true there are no further ones. The `sequence` must be empty, and is left empty. `cpu` reads what
    programs have used of the processor, because an even load shows in no difference between decodes.
    """
    start = max(1, min(_CONTEXT, len(tokens) // 3, target.max_rows))
    most = min(len(tokens) - start, target.max_rows, target.n_ctx - start)

    def decode(count: int) -> float:
        began = clock()
        _decode(target, tokens, sequence, start, count, output=True)
        read(count)
        took = (clock() - began) * 1000
        held = target.truncate(sequence, start if target.can_roll_back else 0)
        if held < start:  # some models cannot drop the last tokens alone
            _decode(target, tokens, sequence, held, start - held, output=False)
        return took

    _decode(target, tokens, sequence, 0, start, output=False)
    end = clock() + budget_s
    before = cpu()
    found: dict[int, list[float]] = {}
    for repeat, count in product(range(_PASSES), counts):
        needed = repeat == 0 or (repeat == 1 and count == counts[0])
        if stop() or not (needed or clock() < end):
            continue
        if count <= most and count * min(found.get(1, [0.0])) <= longest_ms:
            found.setdefault(count, []).append(decode(count))
            told(sum(map(len, found.values())) / (_PASSES * len(counts)))
    target.truncate(sequence, 0)
    return RowTimes(found, is_contended(before, cpu()))


def rising(costs: Mapping[int, float]) -> dict[int, float]:
    """The costs, none above that of a larger count: noise only ever adds time, so the smaller time is right."""
    least = math.inf
    lowered = {count: (least := min(least, costs[count])) for count in sorted(costs, reverse=True)}
    return {count: lowered[count] for count in sorted(costs)}


def _decode(target: Target, tokens: Sequence[int], sequence: int, start: int, count: int, *, output: bool) -> None:
    rows = Rows()
    for position in range(start, start + count):
        rows.add(tokens[position], position, (sequence,), output)
    target.decode(rows)
