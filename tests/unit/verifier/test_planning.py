"""Planning rounds on a toy target: which rows a decode gets, how long it waits for drafts, and the reasons for none."""

import random

import pytest

from services.verifier.planner import QUIET_ROUNDS
from services.verifier.scheduler import most_outputs
from shared.law import payoff
from shared.law.payoff import MAX_WIDTH
from shared.law.speedup import RowCosts
from shared.model.rows import Rows
from shared.wire.messages import Sampling, Speculation
from tests.toys import EOG, drafter_card, job, plain_answer
from tests.unit.verifier.bench import CHEAP, DEAR, Bench


def test_trees_have_no_more_leaves_than_a_row_may_name() -> None:
    bench = Bench(branches=7, max_rows=64)
    generation = bench.admit(job(speculation=Speculation.ALWAYS))
    bench.round()
    tokens = list(range(2, 32))
    bench.propose(generation, 1, tokens, parents=(-1,) * 10 + tuple(range(10)) * 2)
    bench.round()
    assert max(len(ids) for ids in bench.target.decodes[-1].sequences) == 8


def test_a_branch_is_made_only_for_a_guess_that_is_worth_its_time() -> None:
    bench = Bench(branches=7, copy_ms=9.0)  # nearly a decode for each leaf
    generation = bench.admit(job(max_tokens=40, sampling=Sampling(seed=2, logit_bias=((EOG, -100.0),))))
    bench.round()
    shapes = []
    for _ in range(20):
        bench.propose(generation, generation.offset, [61, 62], parents=(-1, -1))
        bench.round()
        shapes.append(max(len(ids) for ids in bench.target.decodes[-1].sequences))
    assert shapes[0] == 2, "what a branch costs is not known yet"
    assert shapes[-1] == 1


def test_streams_are_padded_to_equal_widths() -> None:
    bench = Bench()
    bench.target.unified = False
    one, two = bench.admit(job("a")), bench.admit(job("b"))
    bench.round()
    bench.propose(one, one.offset, [9, 9, 9])
    bench.round()
    rows = bench.target.decodes[-1]
    widths = [sum(ids == (generation.slot.id,) for ids in rows.sequences) for generation in (one, two)]
    assert widths[0] == widths[1] > 1


def test_no_sequence_has_a_single_row_where_that_would_change_bits() -> None:
    bench = Bench(max_rows=16, min_rows=2)
    bench.target.unified = False
    bench.admit(job("a", prompt=list(range(2, 35))))
    bench.admit(job("b", prompt=list(range(2, 20))))
    bench.finish()
    for rows in bench.target.decodes:
        counts = {ids: rows.sequences.count(ids) for ids in rows.sequences}
        assert min(counts.values()) >= 2


def test_rows_that_cost_too_much_are_not_bought_and_the_reason_is_given() -> None:
    bench = Bench(costs=DEAR)
    generation = bench.admit(job())
    answer = plain_answer(job())
    bench.finish(lambda: bench.propose(generation, generation.offset, answer[generation.offset :][:5] or [0]))
    assert bench.engine.counters.values["draft_tokens"] == 0
    assert generation.reason == payoff.TOO_DEAR


def test_a_request_that_wants_drafts_verified_gets_them_whatever_they_cost() -> None:
    bench = Bench(costs=DEAR)
    request = job(speculation=Speculation.ALWAYS)
    answer = plain_answer(request)
    generation = bench.admit(request)
    bench.finish(lambda: bench.propose(generation, generation.offset, answer[generation.offset :][:5] or [0]))
    assert bench.engine.counters.values["accepted_tokens"] > 0
    assert bench.answers["r1"] == answer


def test_reasons_name_what_is_missing() -> None:
    nobody, off, silent = Bench(drafters=()), Bench(), Bench()
    cases = [(nobody, job(), payoff.NO_DRAFTER), (off, job(speculation=Speculation.OFF), payoff.OFF)]
    for bench, request, reason in [*cases, (silent, job(), payoff.NO_DRAFT)]:
        generation = bench.admit(request)
        bench.round()
        bench.round()
        assert generation.reason == reason


def test_a_drafter_that_guesses_at_random_loses_its_rows_and_its_lead() -> None:
    bench = Bench(costs={1: 10.0, 2: 14.0, 8: 20.0, 64: 100.0}, n_ctx=2000)
    request = job(max_tokens=400, sampling=Sampling(seed=1, logit_bias=((EOG, -100.0),)))
    generation = bench.admit(request)
    source = random.Random(1)
    guess = lambda: bench.propose(generation, generation.offset, [source.randrange(64) for _ in range(6)], score=0.99)  # noqa: E731
    bench.finish(guess)
    counters = bench.engine.counters.values
    assert counters["draft_tokens"] < 0.1 * counters["tokens"]
    assert generation.quiet_rounds >= QUIET_ROUNDS
    assert bench.engine.lead(generation, "d") == 0 or generation.quiet_rounds % 256 < 8


def test_a_drafter_that_pays_again_is_noticed_without_spending_rows() -> None:
    bench = Bench(costs={1: 10.0, 2: 14.0, 8: 20.0, 64: 100.0}, n_ctx=2000)
    request = job(max_tokens=900, sampling=Sampling(seed=1, logit_bias=((EOG, -100.0),)))
    answer = plain_answer(request, n_ctx=2000)
    generation = bench.admit(request)

    def guess() -> None:
        right = answer[generation.offset :][:6] or [0]
        bench.propose(generation, generation.offset, [0] * 6 if generation.offset < 100 else right, score=0.99)

    bench.finish(guess)
    assert bench.answers["r1"] == answer
    assert bench.engine.counters.values["accepted_tokens"] > 400


def test_waiting_is_planned_only_for_drafts_that_are_due() -> None:
    bench = Bench()
    generation = bench.admit(job())
    bench.round()
    bench.propose(generation, generation.offset, [9])
    bench.round()  # refused, so the drafter starts anew
    bench.now += 0.0005
    plan = bench.engine.plan()
    assert plan.wait_ms > 0
    bench.now += 1.0  # it stays silent
    assert bench.engine.plan().wait_ms == 0


@pytest.mark.slow
@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("costs", [CHEAP, DEAR, {1: 10.0, 4: 16.0, 32: 60.0, 256: 400.0}])
@pytest.mark.parametrize("streams", [1, 3])
def test_a_long_prompt_makes_no_gap_of_running_streams_longer_than_twice(
    unified: bool, costs: dict[int, float], streams: int
) -> None:
    """And it gets on meanwhile."""
    bench = Bench(costs=costs, n_ctx=5000, max_rows=512, unified=unified)
    endless = Sampling(seed=1, logit_bias=((EOG, -100.0),))
    for number in range(streams):
        bench.admit(job(f"stream {number}", max_tokens=400, sampling=endless))
    for _ in range(100):
        bench.round()
    began = len(bench.target.decodes)
    long = bench.admit(job("long", prompt=[5] * 4000, max_tokens=3, sampling=endless))
    for _ in range(200):
        bench.round()
    price = RowCosts(costs)

    def gap(rows: Rows) -> float:
        if unified:
            return price(len(rows))
        piece = len(rows) - streams
        return price(streams + 1) + (price(piece - 1) if piece > 1 else 0.0)

    plain = price(streams)
    assert max(map(gap, bench.target.decodes[began:])) <= max(2 * plain, price(streams + 1))
    assert 4000 - long.uncomputed >= 200


def test_a_prefill_piece_takes_no_longer_than_leases_allow() -> None:
    bench = Bench(costs={1: 100.0, 32: 3200.0}, n_ctx=2000, max_rows=512)
    bench.admit(job(prompt=[5] * 200, max_tokens=2))
    bench.finish()
    assert max(len(rows) for rows in bench.target.decodes) == 20


def test_a_drafter_that_joins_late_is_asked_for_drafts() -> None:
    """Rounds before anybody could draft say nothing about the one that comes."""
    bench = Bench(drafters=())
    generation = bench.admit(job(max_tokens=100))
    for _ in range(40):
        bench.round()
    bench.engine.drafters.update([drafter_card("d")])
    assert bench.engine.assignment.enlist(generation, bench.now * 1000) == ["d"]
    bench.round()
    assert bench.engine.lead(generation, "d") > 0


def test_nobody_waits_behind_a_copy_where_its_drafter_is_not() -> None:
    bench = Bench()
    request = job(max_tokens=40)
    answer = plain_answer(request)
    generation = bench.admit(request)
    bench.round()
    bench.propose(generation, 1, answer[1:4], score=0.99)
    assert bench.engine.plan().wait_ms > 0
    bench.propose(generation, 1, answer[1:6], score=0.99, copied=2)
    assert bench.engine.plan().wait_ms == 0


def test_planning_again_while_waiting_is_not_a_round() -> None:
    bench = Bench()
    generation = bench.admit(job())
    bench.round()
    bench.propose(generation, generation.offset, [9])
    bench.round()
    before = generation.quiet_rounds
    for _ in range(5):
        bench.engine.plan()
    assert generation.quiet_rounds == before


@pytest.mark.parametrize("unified", [True, False])
def test_requests_that_insist_never_overfill_a_decode(unified: bool) -> None:
    bench = Bench(sequences=12, max_rows=48)
    bench.target.unified = unified
    kinds = [Speculation.ALWAYS if index % 2 else Speculation.AUTO for index in range(12)]
    requests = [job(f"r{index}", prompt=[5, index + 2], speculation=kind) for index, kind in enumerate(kinds)]
    generations = [bench.admit(request) for request in requests]

    def propose() -> None:
        for generation in generations:
            bench.propose(generation, generation.offset, [generation.offset % 60 + 2] * 20, score=0.999)

    bench.finish(propose)
    assert bench.answers == {request.request_id: plain_answer(request) for request in requests}


def test_what_is_worth_waiting_for_is_asked_for_in_one_message() -> None:
    """After a refusal: the drafter is told how many drafts will be waited for, and they are waited for so long."""
    bench = Bench()
    generation = bench.admit(job(max_tokens=100))
    bench.round()
    bench.propose(generation, generation.offset, [generation.offset % 60 + 2])
    bench.round()
    session = generation.sessions["d"]
    assert session.want > 1
    wait_ms = bench.engine.plan().wait_ms
    assert session.hop_ms + session.want * 1.0 - 0.1 <= wait_ms
    bench.propose(generation, generation.offset, list(range(2, 2 + session.want)))
    assert bench.engine.plan().rows or bench.engine.plan().wait_ms < wait_ms


def test_nobody_is_asked_to_hurry_where_waiting_does_not_pay() -> None:
    bench = Bench(costs=DEAR)
    generation = bench.admit(job(max_tokens=100))
    bench.round()
    bench.propose(generation, generation.offset, [generation.offset % 60 + 2])
    bench.round()
    assert generation.sessions["d"].want == 0


def test_a_decode_never_has_more_outputs_than_the_target_makes_room_for() -> None:
    """Whole widths of drafts, all of them wanted, beside prompts that end: the bound is reached and not passed."""
    bench = Bench(sequences=3, max_rows=512, n_ctx=400)
    requests = [
        job(f"r{index}", max_tokens=200, speculation=Speculation.ALWAYS, prompt=(5, 6, index + 2)) for index in range(3)
    ]
    answers = {request.request_id: plain_answer(request, n_ctx=400) for request in requests}
    for request in requests[:2]:
        bench.admit(request)
    for number in range(8):
        if number == 3:
            bench.admit(requests[2])
        for generation in bench.engine.running:
            if generation.uncomputed == 1:
                at = generation.offset
                bench.propose(generation, at, answers[generation.job.request_id][at : at + MAX_WIDTH + 8])
        bench.round()
    outputs = [sum(rows.outputs) for rows in bench.target.decodes]
    assert outputs[3] == 2 * (1 + MAX_WIDTH) + 1
    assert max(outputs) == most_outputs(3) == 3 * 33
