"""A decode that fails costs time or its own requests, never a token of an answer, and a broken target ends."""

from typing import Any

import pytest

from services.verifier.failures import BROKEN, DETAIL, TRIES, Failures, UndoneError, Verdict
from shared.model.rows import LlamaError, Rows
from shared.wire.messages import Finish, Sampling
from tests.toys import EOG, ToyTarget, job, plain_answer
from tests.unit.verifier.bench import Bench

LONG = Sampling(seed=2, logit_bias=((EOG, -100.0),))


class Failing(ToyTarget):
    """Fails in the middle of each decode while `left` lasts, as llama.cpp does, with half of the rows in the cache."""

    left = 0

    def decode(self, rows: Rows) -> None:
        if self.left:
            self.left -= 1
            half = Rows()
            for index in range(len(rows) // 2):
                half.add(rows.tokens[index], rows.positions[index], rows.sequences[index], rows.outputs[index])
            if len(half):
                super().decode(half)
            raise LlamaError("llama_decode failed with status -2")
        super().decode(rows)


def bench(**options: Any) -> tuple[Bench, Failing]:
    one = Bench(kind=Failing, **options)
    assert isinstance(one.target, Failing)
    return one, one.target


@pytest.mark.parametrize("branches", [0, 3])
@pytest.mark.parametrize("failing", [0, 1, 4])
def test_a_decode_that_failed_is_done_again_and_the_answer_is_the_same(branches: int, failing: int) -> None:
    one, target = bench(branches=branches)
    request = job(max_tokens=20, sampling=LONG)
    answer = plain_answer(request)
    generation = one.admit(request)
    for number in range(40):
        if not one.engine.running:
            break
        at = generation.offset
        if at:
            one.propose(generation, at, answer[at:][:6] or [0])
        if number == failing:
            target.left = 2
            for _ in range(2):
                with pytest.raises(UndoneError, match="status -2"):
                    one.round()
        one.round()
    assert one.answers["r1"] == answer


def test_after_three_the_requests_of_the_decode_end_with_an_error_and_later_ones_are_answered() -> None:
    one = Bench()
    one.admit(job(sampling=LONG))
    [gain] = one.engine.give_up(one.engine.plan(may_wait=False))
    assert gain.chunk is not None
    assert (gain.base, gain.chunk.tokens, gain.chunk.finish, gain.chunk.detail) == (0, (), Finish.ERROR, DETAIL)
    one.engine.drop(gain.generation)
    later = job("r2", sampling=LONG)
    one.admit(later)
    one.finish()
    assert one.answers["r2"] == plain_answer(later)


def test_a_target_that_never_decodes_is_broken_and_one_success_counts_anew() -> None:
    failures = Failures()
    verdicts = [failures.failed() for _ in range(BROKEN)]
    again = [Verdict.RETRY] * (TRIES - 1)
    assert verdicts == [*again, Verdict.END, *again, Verdict.END, *again, Verdict.STOP]
    failures.decoded()
    assert failures.failed() is Verdict.RETRY
