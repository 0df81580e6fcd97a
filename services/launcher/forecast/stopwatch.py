"""How long a model's decodes take here, by number of rows: the figures that decide whether speculation pays."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.rows import Rows

COUNTS: Final = (1, 2, 4, 8, 16)
_REPEATS: Final = 3
_CTX: Final = 256  # room for every decode below; a short context is where extra rows are cheapest to judge


def row_costs(
    model: Model, threads: int, counts: Sequence[int] = COUNTS, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Median milliseconds of a decode by row count. Raises `LlamaError` if there is no room for the context."""
    context = Context(model, n_ctx=_CTX, sequences=1, unified=True, threads=threads, max_rows=max(counts))
    try:
        position = _decode(context, 0, max(counts))  # the first decode also allocates and compiles
        costs = {}
        for count in counts:
            times = []
            for _ in range(_REPEATS):
                begin = clock()
                position = _decode(context, position, count)
                times.append((clock() - begin) * 1000)
            costs[count] = statistics.median(times)
        return _rising(costs)
    finally:
        context.close()


def _rising(costs: dict[int, float]) -> dict[int, float]:
    """More rows never cost less. What says so is noise, and noise only ever adds, so the smaller time is the truth."""
    least = math.inf
    rising = {count: (least := min(least, costs[count])) for count in sorted(costs, reverse=True)}
    return {count: rising[count] for count in costs}


def _decode(context: Context, position: int, count: int) -> int:
    """Decode `count` rows at the end of the sequence: nothing is taken back, which some models cannot."""
    rows = Rows()
    for index in range(count):
        rows.add((position + index) % context.n_vocab, position + index, (0,), True)
    context.decode(rows)
    return position + count
