"""A model whose numbers are not finite after one token: what llama.cpp makes of its neighbours, and how it recovers."""

from collections.abc import Iterator

import numpy as np
import pytest

from services.verifier.calibrate import measure_exactness
from shared.law.sampling import BrokenLogits, Logits
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.rows import Rows
from tests import random_models

GOOD, BAD = [5, 6, 7, 8], [5, 6, 40, 8]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    # The output matrix is the transposed embedding, so logits are broken for this token alone before it is read.
    loaded = Model(random_models.llama(tmp_path_factory.mktemp("models") / "broken.gguf", broken=[40]))
    yield loaded
    loaded.close()


def last_logits(context: Context, tokens: list[int], sequence: int) -> Logits:
    rows = Rows()
    for position, token in enumerate(tokens):
        rows.add(token, position, (sequence,), True)
    context.decode(rows)
    return context.logits(len(tokens) - 1).copy()


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("flash_attn", [False, True])
def test_a_cleared_cache_computes_as_a_new_one(model: Model, unified: bool, flash_attn: bool) -> None:
    context = Context(model, n_ctx=256, sequences=2, unified=unified, threads=1, flash_attn=flash_attn)
    fresh = last_logits(context, GOOD, 0)
    context.truncate(0, 0)
    assert np.isnan(last_logits(context, BAD, 1)).all()
    context.clear()
    assert np.array_equal(last_logits(context, GOOD, 0), fresh, equal_nan=True)
    context.close()


def test_a_model_that_always_breaks_is_refused_at_the_start(model: Model) -> None:
    context = Context(model, n_ctx=256, sequences=1, unified=True, threads=1)
    with pytest.raises(BrokenLogits):
        measure_exactness(context, GOOD, 4)
    context.close()
