"""llama.cpp keeps the graph of a decode for the next of the same shape, and padding for its sake changes no answer."""

from collections.abc import Iterator
from itertools import count

import pytest

from services.verifier.engine import Engine
from shared.law import prefix
from shared.law.speedup import RowCosts
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.rows import Rows
from shared.wire.jobs import Claim
from shared.wire.messages import Proposal, Sampling
from tests import random_models
from tests.toys import drafter_card, job

TOKENS = 150


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    loaded = Model(random_models.llama(tmp_path_factory.mktemp("models") / "small.gguf"))
    yield loaded
    loaded.close()


def opened(model: Model, *, unified: bool = True) -> Context:
    """Numbers of 32 bits, so that what shares a decode hardly changes logits."""
    return Context(
        model, n_ctx=512, sequences=2, unified=unified, branches=7, threads=1, flash_attn=False, cache_type_k="f32",
        cache_type_v="f32",
    )  # fmt: skip


def chain(start: int, count: int, outputs: int, sequences: tuple[int, ...] = (0,)) -> Rows:
    rows = Rows()
    for index in range(count):
        rows.add(5 + index, start + index, sequences, index < outputs)
    return rows


def test_a_graph_is_kept_while_rows_logits_and_sequences_are_as_many(model: Model) -> None:
    context = opened(model)
    try:
        context.decode(chain(0, 4, 4))
        before = context.reused_graphs
        for number in range(1, 4):
            context.decode(chain(4 * number, 4, 4))
        assert context.reused_graphs == before + 3
        for others in (chain(16, 5, 5), chain(21, 5, 4), chain(0, 5, 4, (1, 2))):
            context.decode(others)
        assert context.reused_graphs == before + 3
    finally:
        context.close()


def answers(
    model: Model, unified: bool, graph_ms: float, right: dict[str, list[int]]
) -> tuple[dict[str, list[int]], Engine]:
    """Two answers of an engine to which a decode takes 10 ms, with trees of drafts that are `right` in part."""
    context = opened(model, unified=unified)
    ticks = count()
    costs = RowCosts({1: 10.0, 64: 11.0})
    engine = Engine(context, costs, [0], graph_ms=graph_ms, clock=lambda: next(ticks) / 100)
    engine.drafters.update([drafter_card("d")])
    sampling = Sampling(seed=4, temperature=0.8, logit_bias=((0, -100.0),))
    running = []
    for index in range(2):
        request = job(f"r{index}", prompt=(7, 8, 9 + index), max_tokens=TOKENS, sampling=sampling)
        generation = engine.admit(Claim(job=request, epoch=1, committed=0, remaining_ms=1 << 40), [])
        engine.assignment.enlist(generation, 0.0)
        running.append(generation)
    for number in count():
        for generation in engine.running:
            name, offset = generation.job.request_id, generation.offset
            if right and generation.uncomputed == 1:
                good = right[name][offset : offset + 1 + number % 5]
                tokens = (*good, *[5] * (number % 4), 6, 11)[:7]
                parents = (*range(-1, len(tokens) - 2), -1)  # the last one beside the first
                proposal = Proposal(
                    request_id=name, epoch=1, base=offset, tokens=tokens, parents=parents, drafter="d", step_us=1000,
                    prefix_hash=prefix.extend_all(prefix.EMPTY, generation.context), scores=(0.9,) * len(tokens),
                )  # fmt: skip
                engine.take([proposal], 0.0)
        if not engine.running:
            break
        decoded = engine.run(engine.plan(may_wait=False))
        for gain in engine.finish(decoded):
            if gain.generation.offset >= TOKENS:
                engine.drop(gain.generation)
    context.close()
    return {one.job.request_id: one.context[len(one.job.prompt) :] for one in running}, engine


@pytest.mark.parametrize("unified", [True, False], ids=["unified", "streams"])
def test_padding_for_the_sake_of_a_graph_changes_no_answer(model: Model, unified: bool) -> None:
    plain, _ = answers(model, unified, 0.0, {})
    drafted, _ = answers(model, unified, 0.0, plain)
    padded, engine = answers(model, unified, 1.0, plain)
    assert padded == drafted == plain
    counted = engine.counters.values
    assert counted["padding_rows"] > 0
    assert counted["accepted_tokens"] > TOKENS
    assert counted["reused_graphs"] > 0.8 * counted["decodes"]
