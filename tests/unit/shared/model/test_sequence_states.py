"""States of a tiny model's sequences: they come back bit for bit, and idle ones leave the span that decodes read."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from shared.law.sampling import Logits
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.rows import Rows
from shared.model.saved_states import SavedStates
from shared.model.sequences import SPAN_STEP, Sequences
from tests import random_models
from tests.unit.shared.model.test_context import told

TEXT = [int(token) for token in np.random.default_rng(3).integers(1, 90, 2000)]
LENGTH = 300


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Model]]:
    folder: Path = tmp_path_factory.mktemp("models")
    loaded = {
        "llama": Model(random_models.llama(folder / "a.gguf")),
        "gemma3": Model(random_models.gemma3(folder / "b")),
    }
    yield loaded
    for model in loaded.values():
        model.close()


@contextmanager
def opened(model: Model, unified: bool, sequences: int = 3) -> Iterator[Context]:
    types = ("f16", "f16") if unified else ("bf16", "f16")
    context = Context(
        model, n_ctx=512, sequences=sequences, unified=unified, threads=1, max_rows=64, flash_attn=True,
        cache_type_k=types[0], cache_type_v=types[1],
    )  # fmt: skip
    yield context
    context.close()


def read(context: Context, tokens: list[int], position: int = 0, sequence: int = 0) -> Logits:
    for start in range(0, len(tokens), 48):
        rows = Rows()
        rows.extend(tokens[start : start + 48], position + start, sequence)
        rows.outputs[-1] = True
        context.decode(rows)
    return context.logits(len(rows) - 1).copy()


@pytest.mark.parametrize("unified", [True, False], ids=["unified", "streams"])
def test_a_state_comes_back_bit_for_bit_into_any_sequence(models: dict[str, Model], unified: bool) -> None:
    with opened(models["llama"], unified) as context:
        read(context, TEXT[:LENGTH])
        expected = read(context, TEXT[LENGTH : LENGTH + 5], LENGTH)
    with opened(models["llama"], unified) as context:
        assert context.states is not None
        read(context, TEXT[: LENGTH + 20])
        context.truncate(0, LENGTH)
        state = context.states.save(0)
        assert state is not None
        assert len(state) == context.states.size(0)
        context.truncate(0, 0)
        read(context, TEXT[1000:1200])
        assert context.states.restore(2, state)
        assert np.array_equal(read(context, TEXT[LENGTH : LENGTH + 5], LENGTH, 2), expected)


@pytest.mark.parametrize("unified", [True, False], ids=["unified", "streams"])
def test_a_restored_state_can_be_cut_and_continued(models: dict[str, Model], unified: bool) -> None:
    with opened(models["llama"], unified) as context:
        read(context, TEXT[:200])
        expected = read(context, TEXT[500:505], 200)
    with opened(models["llama"], unified) as context:
        assert context.states is not None
        read(context, TEXT[:LENGTH])
        state = context.states.save(0)
        assert state is not None
        assert context.states.restore(1, state)
        assert context.truncate(1, 200) == 200
        found = read(context, TEXT[500:505], 200, 1)
        if unified:  # the same sums in another order, since other sequences have cells between
            np.testing.assert_allclose(found, expected, atol=0.02)
        else:
            assert np.array_equal(found, expected)


def test_while_a_copy_between_streams_waits_nothing_is_saved_or_restored(models: dict[str, Model]) -> None:
    with opened(models["llama"], unified=False) as context:
        assert context.states is not None
        read(context, TEXT[:100])
        state = context.states.save(0)
        assert state is not None
        assert context.copy(0, 1, 100) == 100
        assert context.states.save(1) is None
        assert not context.states.restore(2, state)
        read(context, TEXT[100:101], 100, 1)
        assert context.states.save(1) is not None
        assert context.states.restore(2, state)


def test_a_state_that_cannot_be_restored_leaves_the_sequence_empty(models: dict[str, Model]) -> None:
    with opened(models["llama"], unified=True) as context:
        assert context.states is not None
        read(context, TEXT[:LENGTH])
        state = context.states.save(0)
        assert state is not None
        assert not context.states.restore(0, state[: len(state) // 2])
        expected = read(context, TEXT[500:520])  # from position 0
    with opened(models["llama"], unified=True) as context:
        assert np.array_equal(read(context, TEXT[500:520]), expected)


def test_a_model_with_a_sliding_window_has_no_states(models: dict[str, Model]) -> None:
    with opened(models["gemma3"], unified=True) as context:
        assert context.states is None


def test_after_eight_idle_conversations_a_decode_reads_the_running_one_alone(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp tells of the last used cell before each decode if it is asked to when the context is made."""
    monkeypatch.setenv("LLAMA_KV_CACHE_DEBUG", "1")
    spans = {}
    for name, budget in (("without", 0), ("with", 1 << 30)):
        with told() as lines, opened(models["llama"], unified=True, sequences=9) as context:
            assert context.states is not None
            saved = SavedStates(context.states, budget, lambda name, amount: None) if budget else None
            sequences = Sequences(context, saved)
            for index in range(9):
                tokens = TEXT[100 * index : 100 * index + LENGTH]
                slot = sequences.acquire(tokens, share=True)
                read(context, tokens, 0, slot.id)
                sequences.accept(slot, tokens)
                if index < 8:
                    sequences.release(slot)
            lines.clear()
            read(context, TEXT[:1], LENGTH, slot.id)
            spans[name] = max(int(found) for found in re.findall(r"find_slot: stream\[0\], n = +(\d+)", "".join(lines)))
    assert spans["without"] == 9 * LENGTH
    assert spans["with"] <= LENGTH + SPAN_STEP
