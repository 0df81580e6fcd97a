"""A model with a sliding window answers the same with drafts, and never from a past that its cache has forgotten.

A Gemma 3 with random weights, whose window has 32 tokens. Where only windows are kept, a cache of 256 cells wraps.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import llama_cpp.llama_cpp as C
import numpy as np
import pytest

from services.verifier.engine import Engine
from shared.law import prefix
from shared.law.sampling import Logits
from shared.law.speedup import RowCosts
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.rows import LlamaError, Rows
from shared.model.sequences import Sequences
from shared.wire.jobs import Claim
from shared.wire.messages import Proposal, Sampling, Speculation
from tests import random_models
from tests.toys import drafter_card, job

WINDOW = 32
PIECE = 48  # rows of a decode that reads a text: fewer than the 64 at which ggml takes another kernel
TEXT = [int(token) for token in np.random.default_rng(7).integers(1, 90, 600)]
LAYOUTS = [(unified, full) for unified in (True, False) for full in (True, False)]
NAMES = [f"{'unified' if unified else 'streams'}, {'all' if full else 'windows'}" for unified, full in LAYOUTS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    loaded = Model(random_models.gemma3(tmp_path_factory.mktemp("models") / "gemma3.gguf", window=WINDOW))
    yield loaded
    loaded.close()


@contextmanager
def opened(model: Model, unified: bool, swa_full: bool, sequences: int = 2, branches: int = 0) -> Iterator[Context]:
    context = Context(
        model,
        n_ctx=1024,
        sequences=sequences,
        unified=unified,
        swa_full=swa_full,
        branches=branches,
        threads=1,
        max_rows=64,
        flash_attn=True,
    )
    yield context
    context.close()


def read(context: Context, tokens: list[int], position: int = 0, sequence: int = 0) -> Logits:
    """Decode `tokens` in pieces; the logits after the last one."""
    for start in range(0, len(tokens), PIECE):
        rows = Rows()
        rows.extend(tokens[start : start + PIECE], position + start, sequence)
        rows.outputs[-1] = True
        context.decode(rows)
    return context.logits(len(rows) - 1).copy()


def fresh(model: Model, tokens: list[int], unified: bool = True) -> Logits:
    with opened(model, unified, swa_full=True) as context:
        return read(context, tokens)


@pytest.mark.parametrize(("unified", "full"), LAYOUTS, ids=NAMES)
@pytest.mark.parametrize("length", [20, 96, 192, 480])
def test_drafts_that_are_taken_back_leave_no_trace(length: int, unified: bool, full: bool, model: Model) -> None:
    found: list[Logits] = []
    for drafts in ([], [5, 6, 7, 8, 9, 10, 11, 12]):
        with opened(model, unified, full) as context:
            read(context, TEXT[:length])
            read(context, [*TEXT[length : length + 2], *drafts], length)
            assert context.truncate(0, length + 2) == length + 2
            found.append(read(context, TEXT[length + 2 : length + 4], length + 2))
    assert np.array_equal(found[0], found[1])


@pytest.mark.slow
@pytest.mark.parametrize("length", range(246, 258))
def test_drafts_that_are_taken_back_across_the_end_of_the_cells_are_forgotten(length: int, model: Model) -> None:
    """The cells that follow may then be others, so the sums are the same but for their order."""
    with opened(model, unified=True, swa_full=False) as context:
        read(context, TEXT[:length])
        read(context, [*TEXT[length : length + 2], 5, 6, 7, 8, 9, 10, 11, 12], length)
        assert context.truncate(0, length + 2) == length + 2
        found = read(context, TEXT[length + 2 : length + 4], length + 2)
    np.testing.assert_allclose(found, fresh(model, TEXT[: length + 4]), atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("unified", "full"), LAYOUTS, ids=NAMES)
def test_whatever_is_taken_back_the_next_token_sees_its_whole_window(unified: bool, full: bool, model: Model) -> None:
    """Four sequences share the cells and are cut anywhere; what can be continued gives the logits of a fresh start."""
    source = np.random.default_rng(5)
    held: list[list[int]] = [[] for _ in range(4)]
    emptied = 0
    with opened(model, unified, full, sequences=4) as context:
        for _ in range(150):
            index = int(source.integers(4))
            tokens = held[index]
            new = [int(token) for token in source.integers(1, 90, source.integers(20, 48))]
            if len(tokens) + len(new) > 900:
                new = []
                wanted = 0
            else:
                read(context, new, len(tokens), index)
                wanted = len(tokens) + len(new) - int(source.integers(0, len(new)))
                if source.random() < 0.1:
                    wanted = int(source.integers(1, len(tokens) + len(new)))
                    assert context.floor(index) <= len(tokens) + len(new), "what has just been read can be continued"
            kept = context.truncate(index, wanted)
            assert kept in (wanted, 0)
            emptied += wanted > kept
            held[index] = [*tokens, *new][:kept]
        assert emptied or (full and not unified)
        for index, tokens in enumerate(held):
            found = read(context, TEXT[:2], len(tokens), index)
            np.testing.assert_allclose(found, fresh(model, [*tokens, *TEXT[:2]]), atol=0.02)


def test_llama_cpp_goes_on_from_a_past_with_holes_and_we_do_not(model: Model) -> None:
    """It overwrites what has left a window even where it keeps all and has empty cells."""
    with opened(model, unified=True, swa_full=True) as context:
        read(context, TEXT[:96], sequence=0)
        read(context, TEXT[:200], sequence=1)
        assert context.floor(1) == 0
        context.truncate(0, 80)
        read(context, TEXT[80:120], 80, sequence=0)
        assert 40 < context.floor(1) < 60
        C.llama_memory_seq_rm(context._memory, 1, 40, -1)
        wrong = read(context, TEXT[40:42], 40, sequence=1)
        assert np.abs(wrong - fresh(model, TEXT[:42])).max() > 0.1
        assert context.truncate(1, 40) == 0
        np.testing.assert_allclose(read(context, TEXT[:42], 0, sequence=1), fresh(model, TEXT[:42]), atol=0.02)


@pytest.mark.parametrize(("unified", "full"), LAYOUTS, ids=NAMES)
def test_a_prefix_is_used_again_where_all_is_kept_and_read_anew_where_not(
    unified: bool, full: bool, model: Model
) -> None:
    with opened(model, unified, full) as context:
        sequences = Sequences(context)
        slot = sequences.acquire(TEXT[:500], share=True)
        read(context, TEXT[:500], sequence=slot.id)
        sequences.accept(slot, TEXT[:500])
        sequences.release(slot)
        prompt = [*TEXT[:100], 3, 4]
        again = sequences.acquire(prompt, share=True)
        assert again.tokens == (TEXT[:100] if full else [])
        found = read(context, prompt[len(again.tokens) :], len(again.tokens), again.id)
        np.testing.assert_allclose(found, fresh(model, prompt), atol=0.02)


def test_sequences_that_keep_windows_alone_share_nothing_in_the_unified_cache(model: Model) -> None:
    with opened(model, unified=True, swa_full=False, branches=7) as context:
        assert (context.branches, context.can_copy) == (0, False)
        with pytest.raises(LlamaError, match="share no tokens"):
            context.copy(0, 1, 10)
    with opened(model, unified=True, swa_full=True, branches=7) as context:
        assert (context.branches, context.can_copy) == (7, True)


def answers(model: Model, unified: bool, full: bool, right: dict[str, list[int]]) -> tuple[dict[str, list[int]], int]:
    """What an engine answers to two long prompts, with chains that are right in part, or plainly without `right`."""
    with opened(model, unified, full, branches=7) as context:
        engine = Engine(context, RowCosts({1: 10.0, 64: 11.0}), [0], min_rows=2, clock=lambda: 0.0)
        engine.drafters.update([drafter_card("d")])
        sampling = Sampling(seed=4, temperature=0.8, logit_bias=((0, -100.0),))
        wish = Speculation.ALWAYS if right else Speculation.OFF
        running = []
        for index in range(2):
            request = job(f"r{index}", TEXT[index : 220 + index], max_tokens=80, sampling=sampling, speculation=wish)
            generation = engine.admit(Claim(job=request, epoch=1, committed=0, remaining_ms=1 << 40), [])
            engine.assignment.enlist(generation, 0.0)
            running.append(generation)
        for number in range(200):
            for generation in running:
                offset, name = generation.offset, generation.job.request_id
                if right and generation.uncomputed == 1 and offset < 80:
                    tokens = (*right[name][offset : offset + 1 + number % 7], 5, 6, 7)
                    at = prefix.extend_all(prefix.EMPTY, generation.context)
                    proposal = Proposal(
                        request_id=name, epoch=1, base=offset, prefix_hash=at, tokens=tokens,
                        scores=(0.9,) * len(tokens), drafter="d", step_us=1000,
                    )  # fmt: skip
                    engine.take([proposal], 0.0)
            plan = engine.plan(may_wait=False)
            if not plan.rows:
                break
            decoded = engine.run(plan)
            for gain in engine.finish(decoded):
                if gain.generation.offset >= 80:
                    engine.drop(gain.generation)
        found = {generation.job.request_id: generation.context[len(generation.job.prompt) :] for generation in running}
        return found, engine.counters.values["accepted_tokens"]


@pytest.mark.parametrize(("unified", "full"), LAYOUTS, ids=NAMES)
def test_drafts_change_no_answer(unified: bool, full: bool, model: Model) -> None:
    plain, _ = answers(model, unified, full, {})
    assert {len(tokens) for tokens in plain.values()} == {80}
    drafted, accepted = answers(model, unified, full, plain)
    assert drafted == plain
    assert accepted > 60
