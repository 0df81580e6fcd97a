"""How long a loaded model's decodes take here, by number of rows: the figures of `doctor`, `plan` and `setup`."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from shared.model import row_costs
from shared.model.llama.context import Context
from shared.model.llama.model import Model

COUNTS: Final = (1, 2, 4, 8, 9, 16)  # fewer than a verifier's, which measures once and keeps the answer
_CTX: Final = 256  # room for the text and every decode


def measure(
    model: Model, threads: int, counts: Sequence[int] = COUNTS, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """As `row_costs.measure`, in a context of its own. Raises `LlamaError` if there is no room for it."""
    context = Context(
        model, n_ctx=_CTX, sequences=1, unified=True, threads=threads, max_rows=64, max_outputs=max(counts)
    )
    try:
        return row_costs.measure(context, model.vocabulary.tokenize(row_costs.PROBE_TEXT), counts, clock=clock)
    finally:
        context.close()
