"""The number of threads changes how long a decode takes, and not one bit of what it gives, under strict settings."""

from collections.abc import Iterator

import numpy as np
import pytest

from shared.law.sampling import Logits
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.rows import Rows
from tests import random_models

PROMPT = 600  # longer than the 512 keys from which llama.cpp divides attention among threads
WIDTHS = (1, 2, 5, 9, 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    loaded = Model(random_models.llama(tmp_path_factory.mktemp("models") / "tiny.gguf", n_tokens=300))
    yield loaded
    loaded.close()


def logits(model: Model, threads: tuple[int, ...]) -> list[Logits]:
    """Of rows decoded in pieces, each with the next number of threads."""
    context = Context(
        model, n_ctx=1024, sequences=1, unified=False, threads=threads[0], flash_attn=True,
        cache_type_k="bf16", cache_type_v="f16",
    )  # fmt: skip
    found: list[Logits] = []
    try:
        at = 0
        for index, count in enumerate((PROMPT // 2, PROMPT // 2, *WIDTHS)):
            context.use_threads(threads[index % len(threads)])
            rows = Rows()
            for position in range(at, at + count):
                rows.add(position * 7 % 300, position, (0,), position >= PROMPT)
            context.decode(rows)
            found += [context.logits(row).copy() for row in range(count) if at + row >= PROMPT]
            at += count
    finally:
        context.close()
    return found


def test_logits_are_bit_equal_with_any_number_of_threads(model: Model) -> None:
    alone = logits(model, (1,))
    assert len(alone) == sum(WIDTHS)
    assert all(np.isfinite(row).all() for row in alone)
    for threads in ((2,), (3,), (1, 2), (2, 1)):
        assert all(map(np.array_equal, alone, logits(model, threads))), threads
