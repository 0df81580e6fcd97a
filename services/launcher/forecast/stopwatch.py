"""How long a loaded model's decodes take here, by number of rows: the figures of `doctor`, `plan` and `setup`."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from shared.model import row_costs
from shared.model.llama.context import Context
from shared.model.llama.fitness import Fitness
from shared.model.llama.model import Model
from shared.model.llama.placement import Placement

COUNTS: Final = (1, 2, 4, 8, 9, 16)  # fewer than a verifier's, which measures once and keeps the answer
_CTX: Final = 256  # room for the text and every decode


def measure(
    model: Model, threads: int, counts: Sequence[int] = COUNTS, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """The costs by `row_costs.time_rows`, in a context of its own. Raises `LlamaError` if there is no room for it."""
    tokens, most = model.vocabulary.tokenize(row_costs.PROBE_TEXT), max(counts)
    context = Context(model, n_ctx=_CTX, sequences=1, unified=True, threads=threads, max_rows=64, max_outputs=most)
    with closing(context):
        return row_costs.time_rows(context, tokens, counts, clock=clock).costs


def load(
    path: Path, place: Placement, layers: int, fitness: Fitness, progress: Callable[[float], None] | None = None
) -> Model:
    """The model with so many `layers` on its devices, as a service would load it. Raises `LlamaError`."""
    return Model(
        path,
        devices=place.devices,
        gpu_layers=layers,
        extra_buffers=fitness.extra_buffers(path, place.devices),
        tensor_split=place.shares,
        progress=progress,
    )
