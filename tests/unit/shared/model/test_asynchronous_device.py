"""A device that computes in the background is timed like one that does not, wherever decodes are timed.

The real `Context` decodes a tiny model over a fake device and a fake clock: `llama_decode` returns after 1 ms, and the
rows are ready when their true cost is over. What waits for them is what llama.cpp waits in: `llama_synchronize` and
`llama_get_logits_ith`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llama_cpp.llama_cpp as C
import pytest

from bench import raw
from services.drafter import step_costs
from services.drafter.model_proposer import ModelProposer
from services.drafter.proposer import Opening
from services.launcher.forecast import stopwatch
from services.verifier.engine import Engine
from services.verifier.generation import Generation
from shared.law import prefix
from shared.law.speedup import RowCosts
from shared.model import row_costs
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.wire.jobs import Claim
from shared.wire.messages import Proposal, Sampling
from tests import random_models
from tests.toys import drafter_card, job

TRUE_MS = RowCosts({1: 12.0, 8: 14.0, 64: 40.0})
EARLY_MS = 1.0
KINDS = ("synchronous", "asynchronous")
PROMPT = list(range(2, 92)) * 3
EOG = 0
SAMPLING = Sampling(seed=3, temperature=1.0, logit_bias=((EOG, -100.0),))


class Device:
    """Stands in for the calls that a device answers late. `clock` is in seconds."""

    def __init__(self, patch: pytest.MonkeyPatch, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._now_ms = self._ready_ms = 0.0
        for name, late in (("llama_decode", self._decode), ("llama_synchronize", self._wait)):
            patch.setattr(C, name, self._around(getattr(C, name), late))
        patch.setattr(C, "llama_get_logits_ith", self._around(C.llama_get_logits_ith, self._wait))

    def clock(self) -> float:
        return self._now_ms / 1000

    @staticmethod
    def _around(call: Any, late: Any) -> Any:
        def inner(*arguments: Any) -> Any:
            late(*arguments)
            return call(*arguments)

        return inner

    def _decode(self, _: Any, batch: Any) -> None:
        self._ready_ms = max(self._now_ms, self._ready_ms) + TRUE_MS(batch.n_tokens)
        self._now_ms = self._now_ms + EARLY_MS if self._asynchronous else self._ready_ms

    def _wait(self, *_: Any) -> None:
        self._now_ms = max(self._now_ms, self._ready_ms)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    loaded = Model(random_models.llama(tmp_path_factory.mktemp("models") / "llama.gguf"))
    yield loaded
    loaded.close()


@contextmanager
def late(kind: str) -> Iterator[Device]:
    with pytest.MonkeyPatch.context() as patch:
        yield Device(patch, asynchronous=kind == "asynchronous")


@contextmanager
def opened(model: Model, sequences: int = 2, branches: int = 0, max_rows: int = 64) -> Iterator[Context]:
    context = Context(
        model, n_ctx=512, sequences=sequences, unified=True, threads=1, branches=branches, max_rows=max_rows
    )
    yield context
    context.close()


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_learns_what_rows_truly_cost(kind: str, model: Model) -> None:
    with late(kind) as device, opened(model) as context:
        found = row_costs.time_rows(context, PROMPT[:80], clock=device.clock).costs
    assert len(found) > 8
    assert found == pytest.approx({count: TRUE_MS(count) for count in found})


@pytest.mark.parametrize("kind", KINDS)
def test_the_stopwatch_sees_what_rows_truly_cost(kind: str, model: Model) -> None:
    with late(kind) as device:
        found = stopwatch.measure(model, 1, clock=device.clock)
    assert found == pytest.approx({count: TRUE_MS(count) for count in stopwatch.COUNTS})


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_learns_what_its_steps_truly_cost(kind: str, model: Model) -> None:
    with late(kind) as device, opened(model) as context:
        found = step_costs.measure(context, PROMPT[:40], 3, device.clock)
    assert found == pytest.approx({count: TRUE_MS(count) for count in (1, 2, 4)})  # more rows might take too long


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_says_truly_how_long_its_steps_take(kind: str, model: Model) -> None:
    with late(kind) as device, opened(model) as context:
        proposer = ModelProposer(context, clock=device.clock)
        proposer.open(Opening("r1", tuple(PROMPT[:20]), (), SAMPLING, frozenset({EOG}), context.n_vocab, lead=8))
        while proposer.busy:
            proposer.step()
    assert proposer.step_us == pytest.approx(TRUE_MS(1) * 1000, abs=1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_yardsticks_own_loop_takes_what_its_decodes_take(kind: str, model: Model) -> None:
    request = {"prompt": PROMPT[:64], "seed": 1, "temperature": 0.0, "tokens": 9}
    with late(kind) as device, opened(model, sequences=1) as context:
        found = raw.answer(context, frozenset(), request, device.clock)
    assert found["prefill_s"] == pytest.approx(TRUE_MS(64) / 1000)
    assert found["decode_s"] == pytest.approx(8 * TRUE_MS(1) / 1000)


class Rounds:
    """An engine that has to learn its costs, with a request whose drafts are right and a long prompt that arrives."""

    def __init__(self, context: Context, device: Device, answer: list[int]) -> None:
        self._device = device
        self._answer = answer
        self.engine = Engine(context, RowCosts({1: 3.0, 64: 9.0}), [EOG], clock=device.clock)
        self.engine.drafters.update([drafter_card("d")])
        self.seen: list[tuple[int, int, float]] = []  # rows, rows of prompts, milliseconds

    def admit(self, name: str, prompt: list[int]) -> Generation:
        claim = Claim(
            job=job(name, prompt, max_tokens=60, sampling=SAMPLING), epoch=1, committed=0, remaining_ms=1 << 40
        )
        generation = self.engine.admit(claim, [])
        self.engine.assignment.enlist(generation, self._device.clock() * 1000)
        return generation

    def round(self) -> None:
        plan = self.engine.plan(may_wait=False)
        decoded = self.engine.run(plan)
        self.engine.finish(decoded)
        self.seen.append((len(plan.rows), plan.prefill_rows, round(decoded.decode_ms, 6)))

    def propose(self, generation: Generation) -> None:
        offset = generation.offset
        guesses = tuple(self._answer[offset : offset + 8])
        at = prefix.extend_all(prefix.EMPTY, generation.context)
        proposal = Proposal(
            request_id=generation.job.request_id,
            epoch=1,
            base=offset,
            prefix_hash=at,
            tokens=guesses,
            scores=(0.9,) * len(guesses),
            drafter="d",
            step_us=1000,
        )
        self.engine.take([proposal], self._device.clock() * 1000)


def run(kind: str, model: Model, answer: list[int]) -> tuple[list[tuple[int, int, float]], list[int], object]:
    """The decodes, the first request's tokens and the learned costs, with `answer` as what the drafter guesses."""
    with late(kind) as device, opened(model) as context:
        rounds = Rounds(context, device, answer)
        first = rounds.admit("first", PROMPT[:30])
        for number in range(24):
            if number == 6:
                rounds.admit("second", PROMPT)
            if first.uncomputed == 1 and answer:
                rounds.propose(first)
            rounds.round()
        return rounds.seen, first.context[30:], rounds.engine.costs.table


def test_an_engine_learns_the_same_costs_and_plans_the_same_widths_and_pieces(model: Model) -> None:
    _, answer, _ = run("synchronous", model, [])
    synchronous = run("synchronous", model, answer)
    assert run("asynchronous", model, answer) == synchronous
    seen = synchronous[0]
    assert all(ms == pytest.approx(TRUE_MS(rows)) for rows, _, ms in seen)
    assert any(rows > 2 and not prompt for rows, prompt, _ in seen), "drafts got rows"
    assert any(1 < prompt < rows for rows, prompt, _ in seen), "a piece of a prompt went beside them"
