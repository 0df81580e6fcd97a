"""The round with a toy target: whatever is proposed, whenever, the answer is the plain loop's."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.engine import Engine
from services.verifier.generation import Generation
from services.verifier.round import QUIET_ROUNDS
from services.verifier.scheduler import most_outputs
from shared.law import payoff, prefix
from shared.law.acceptance import COPIED
from shared.law.payoff import MAX_WIDTH
from shared.law.speedup import RowCosts
from shared.model.rows import Rows
from shared.wire.jobs import Claim
from shared.wire.messages import Chunk, Finish, Job, Proposal, Sampling, Speculation, TokenLogprob
from tests.toys import EOG, VOCABULARY, ToyTarget, drafter_card, job, plain_answer

CHEAP = {1: 10.0, 2: 10.1, 8: 10.7, 64: 16.0}
DEAR = {1: 10.0, 2: 20.0, 64: 640.0}


class Bench:
    """An engine over a toy target, a clock that only decodes and tests move, and the answers so far."""

    def __init__(
        self, costs: dict[int, float] | None = None, drafters: tuple[str, ...] = ("d",), **target: Any
    ) -> None:
        self.now = 0.0
        prices = RowCosts(costs or CHEAP)
        self.target = ToyTarget(took=lambda rows: self.spend(prices(rows)), **target)
        self.engine = Engine(self.target, RowCosts(costs or CHEAP), [EOG], clock=lambda: self.now)
        self.engine.drafters.update([drafter_card(name, model=name) for name in drafters])
        self.answers: dict[str, list[int]] = {}
        self.finishes: dict[str, Finish] = {}
        self.chunks: list[Chunk] = []

    def spend(self, ms: float) -> None:
        self.now += ms / 1000

    def admit(self, request: Job, output: list[int] | None = None) -> Generation:
        claim = Claim(job=request, epoch=1, committed=len(output or []), remaining_ms=10_000)
        generation = self.engine.admit(claim, output or [])
        self.engine.assignment.enlist(generation, self.now * 1000)
        self.answers[request.request_id] = list(output or [])
        return generation

    def propose(
        self, generation: Generation, base: int, tokens: list[int], source: str = "d",
        score: float = 0.9, parents: tuple[int, ...] = (), copied: int = 0,
    ) -> None:  # fmt: skip
        committed = generation.context[len(generation.job.prompt) :]
        at = prefix.extend_all(prefix.EMPTY, [*generation.job.prompt, *committed[:base]])
        proposal = Proposal(
            request_id=generation.job.request_id, epoch=1, base=base, prefix_hash=at, tokens=tuple(tokens),
            scores=(score,) * len(tokens), drafter=source, step_us=1000,
            parents=parents, copied=copied,
        )  # fmt: skip
        self.engine.take([proposal], self.now * 1000)

    def round(self) -> None:
        plan = self.engine.plan(may_wait=False)
        decoded = self.engine.run(plan)
        for gain in self.engine.finish(decoded):
            if gain.chunk is None:
                continue
            self.chunks.append(gain.chunk)
            name = gain.generation.job.request_id
            assert gain.base == len(self.answers[name])
            self.answers[name] += gain.chunk.tokens
            if gain.chunk.finish is not Finish.NONE:
                self.finishes[name] = gain.chunk.finish
                self.engine.drop(gain.generation)

    def finish(self, before: Callable[[], None] = lambda: None) -> None:
        for _ in range(1000):
            if not self.engine.running:
                return
            before()
            self.round()
        raise AssertionError("the requests never end")


def test_without_drafters_the_answer_is_the_plain_loops() -> None:
    bench = Bench(drafters=())
    request = job()
    bench.admit(request)
    bench.finish()
    assert bench.answers["r1"] == plain_answer(request)


def test_perfect_drafts_are_all_accepted_in_few_rounds() -> None:
    bench = Bench()
    request = job(max_tokens=20, sampling=Sampling(seed=2, logit_bias=((EOG, -100.0),)))
    answer = plain_answer(request)
    generation = bench.admit(request)
    bench.finish(lambda: bench.propose(generation, generation.offset, answer[generation.offset :][:8] or [0]))
    assert bench.answers["r1"] == answer
    assert bench.engine.counters.values["accepted_tokens"] > 10
    assert len(bench.target.decodes) < 10


def test_a_request_tells_its_age_and_its_speed_since_the_first_token() -> None:
    bench = Bench(drafters=())
    generation = bench.admit(job(sampling=Sampling(seed=2, logit_bias=((EOG, -100.0),))))
    bench.round()  # reads the prompt and draws the first token
    first_s = bench.now
    assert generation.status(bench.now * 1000).tokens_per_second == 0.0
    for _ in range(5):
        bench.round()
    status = generation.status(bench.now * 1000)
    assert status.tokens_per_second == pytest.approx(5 / (bench.now - first_s))
    assert status.age_ms == int(bench.now * 1000)


def test_a_drafter_is_told_of_by_all_rounds_of_its_requests_and_by_how_far_away_it_is() -> None:
    bench = Bench()
    request = job(sampling=Sampling(seed=2, logit_bias=((EOG, -100.0),)))
    answer = plain_answer(request)
    generation = bench.admit(request)
    bench.round()
    bench.spend(6.0)
    bench.propose(generation, generation.offset, answer[generation.offset :][:2])
    bench.round()
    [counts] = [drafter.counts for drafter in bench.engine.drafters]
    assert (counts.asked, counts.rounds, counts.added) == (2, 1, 2)
    assert counts.round_trip_ms == pytest.approx(1.8)  # from 1 ms a fifth of the way to 5: a step took one of the six


def test_cells_hold_the_accepted_context_after_every_round() -> None:
    bench = Bench()
    request = job()
    answer = plain_answer(request)
    generation = bench.admit(request)

    def check() -> None:
        assert bench.target.cells[generation.slot.id] == generation.slot.tokens
        wrong = [(token + 1) % VOCABULARY for token in answer[generation.offset + 2 :]][:3]
        bench.propose(generation, generation.offset, [*answer[generation.offset :][:2], *wrong] or [0])

    bench.finish(check)
    assert bench.answers["r1"] == answer


drafting = st.sampled_from(["right", "wrong", "late", "branch", "tree", "silent", "beyond eog", "beyond vocabulary"])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from(["stream", "unified", "padded", "window"]),
    st.lists(drafting, min_size=1, max_size=40),
    st.sampled_from([0.0, 0.7, 1.0]),
    st.sampled_from(list(Speculation)),
)
def test_no_proposal_of_any_shape_changes_any_answer(
    seed: int, layout: str, script: list[str], temperature: float, speculation: Speculation
) -> None:
    """Four requests at once, two drafters that say anything: each answer equals the plain loop's."""
    source = random.Random(seed)
    bench = Bench(
        drafters=("d", "e"),
        unified=layout in ("unified", "window"),
        branches=7 if layout == "unified" else 0,
        window=6 if layout == "window" else 0,
    )
    bench.engine._planner._min_rows = 2 if layout == "padded" else 1
    requests = [
        job(
            f"r{index}",
            prompt=[5, 6, 7, *range(8, 8 + 9 * index)],
            max_tokens=10 + index,
            sampling=Sampling(
                seed=seed + index, temperature=temperature, top_k=(0, 20)[index % 2], presence_penalty=float(index == 2)
            ),
            speculation=speculation,
        )
        for index in range(4)
    ]
    answers = {request.request_id: plain_answer(request) for request in requests}
    generations = [bench.admit(request) for request in requests]

    def propose() -> None:
        for generation in generations:
            name, answer = source.choice("de"), answers[generation.job.request_id]
            kind, at = source.choice(script), generation.offset
            future = answer[at : at + source.randrange(1, 9)] or [EOG]
            if kind == "wrong":
                future = [source.randrange(VOCABULARY) for _ in future]
            elif kind == "branch":
                future = [*future[:-1], source.randrange(VOCABULARY)]
            elif kind == "late":
                at = source.randrange(at + 1)
                future = answer[at : at + 12] or [EOG]
            elif kind == "beyond vocabulary":
                future = [*future[:2], VOCABULARY + source.randrange(2**30), *future[2:]]
            elif kind == "beyond eog":
                future = [*future, EOG, 3, 4]
            parents: tuple[int, ...] = ()
            if kind == "tree":
                future = [source.choice([token, source.randrange(VOCABULARY)]) for token in future for _ in range(3)]
                parents = tuple(source.randrange(-1, index) for index in range(len(future)))
            if kind != "silent":
                bench.propose(generation, at, future, name, source.random(), parents)

    bench.finish(propose)
    assert bench.answers == answers
    assert all(not cells for cells in bench.target.cells[4:]), "branches are emptied after every round"


def test_a_second_guess_is_verified_in_the_same_decode_and_its_cells_are_kept() -> None:
    bench = Bench(branches=7)
    request = job(max_tokens=12)
    answer = plain_answer(request)
    generation = bench.admit(request)
    bench.round()  # the prompt
    wrong = (answer[1] + 1) % VOCABULARY or 2
    # A wrong first guess with something behind it, the right one as an alternative, likewise.
    bench.propose(generation, 1, [wrong, answer[1], 9, answer[2], answer[3]], parents=(-1, -1, 0, 1, 3))
    bench.round()
    assert bench.answers["r1"] == answer[:5]
    assert len(bench.target.decodes[-1]) == 6
    assert bench.target.cells[generation.slot.id] == generation.slot.tokens == [*request.prompt, *answer[:4]]
    bench.finish()
    assert bench.answers["r1"] == answer


def test_trees_have_no_more_leaves_than_a_row_may_name() -> None:
    bench = Bench(branches=7, max_rows=64)
    generation = bench.admit(job(speculation=Speculation.ALWAYS))
    bench.round()
    tokens = list(range(2, 32))
    bench.propose(generation, 1, tokens, parents=(-1,) * 10 + tuple(range(10)) * 2)
    bench.round()
    assert max(len(ids) for ids in bench.target.decodes[-1].sequences) == 8


def test_rounds_are_counted_by_how_they_began() -> None:
    bench = Bench()
    request = job(max_tokens=12)
    answer = plain_answer(request)
    generation = bench.admit(request)
    bench.round()
    bench.propose(generation, 1, answer[1:6])
    bench.round()
    bench.propose(generation, generation.offset, [*answer[7:8], (answer[8] + 1) % VOCABULARY])
    bench.round()
    counts = [(start.after, start.offset, start.rounds, start.ready) for start in bench.engine.counters.starts]
    assert counts == [("accepted", 0, 1, 0), ("plain", 0, 1, 0), ("refused", 1, 1, 0)]


@pytest.mark.parametrize(("unified", "window"), [(True, 0), (False, 0), (True, 40)])
def test_requests_that_come_and_go_do_not_disturb_each_other(unified: bool, window: int) -> None:
    """Long prompts in chunks, prefix reuse and copies, sequences freed and taken again."""
    bench = Bench(sequences=3, n_ctx=200, max_rows=32, window=window)
    bench.target.unified = unified
    source = random.Random(3)
    base = [source.randrange(2, VOCABULARY) for _ in range(70)]
    requests = [
        job(f"r{i}", prompt=[*base[: source.randrange(20, 70)], i + 2], max_tokens=15, sampling=Sampling(seed=i))
        for i in range(9)
    ]
    waiting = list(requests)

    def arrive() -> None:
        while waiting and bench.engine.sequences.free:
            bench.admit(waiting.pop(0))

    arrive()
    bench.finish(arrive)
    assert bench.answers == {request.request_id: plain_answer(request) for request in requests}
    assert bench.engine.counters.values["cached_tokens"] > 0


def test_a_takeover_continues_where_the_log_ends() -> None:
    request = job(max_tokens=20)
    answer = plain_answer(request)
    bench = Bench()
    bench.admit(request, answer[:7])
    bench.finish()
    assert bench.answers["r1"] == answer


def test_the_answer_ends_by_length_by_context_or_by_its_own_end() -> None:
    endless = Sampling(seed=1, logit_bias=((EOG, -100.0),))
    bench = Bench(n_ctx=40)
    bench.admit(job("short", max_tokens=5, sampling=endless))
    bench.admit(job("full", max_tokens=500, sampling=endless))
    bench.admit(job("end", max_tokens=20, sampling=Sampling(seed=1, logit_bias=((EOG, 100.0),))))
    bench.finish()
    assert {name: len(answer) for name, answer in bench.answers.items()} == {"short": 5, "full": 37, "end": 0}
    assert bench.finishes == {"short": Finish.LENGTH, "full": Finish.LENGTH, "end": Finish.STOP}


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
    bench = Bench(max_rows=16)
    bench.target.unified = False
    bench.engine._planner._min_rows = 2
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


def test_logprobs_cover_every_token_and_come_from_the_target() -> None:
    bench = Bench()
    request = job(top_logprobs=2)
    answer = plain_answer(request)
    generation = bench.admit(request)
    found: list[TokenLogprob] = []
    for _ in range(100):
        if not bench.engine.running:
            break
        bench.propose(generation, generation.offset, answer[generation.offset :][:4] or [0])
        plan = bench.engine.plan(may_wait=False)
        decoded = bench.engine.run(plan)
        for gain in bench.engine.finish(decoded):
            assert gain.chunk is not None
            assert len(gain.chunk.logprobs) == len(gain.chunk.tokens)
            found += gain.chunk.logprobs
            if gain.chunk.finish is not Finish.NONE:
                bench.engine.drop(gain.generation)
    assert len(found) == len(answer)
    assert all(len(entry.top) == 2 and entry.logprob <= 0 for entry in found)


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


def test_a_request_past_its_deadline_is_found() -> None:
    bench = Bench()
    generation = bench.admit(job())
    assert bench.engine.expired() == []
    bench.spend(10_001)
    assert bench.engine.expired() == [generation]


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


def test_what_lies_beyond_the_vocabulary_takes_no_token_from_those_copied_before_it() -> None:
    bench = Bench()
    generation = bench.admit(job(max_tokens=40))
    bench.propose(generation, 0, [5, 6, 7, VOCABULARY], copied=2)
    ranks = []
    node = generation.trie.root
    while node.children:
        (node,) = node.children.values()
        ranks.append(node.guesses["d"].rank)
    assert ranks == [0, 0, COPIED]


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


def test_a_request_made_for_another_target_is_a_misfit() -> None:
    bench = Bench(n_ctx=40)

    def misfit(request: Job, output: list[int]) -> str:
        return bench.engine.misfit(Claim(job=request, epoch=1, committed=len(output), remaining_ms=1), output)

    assert misfit(job(), []) == ""
    assert "context of 40" in misfit(job(prompt=[5] * 40), [])
    assert "context of 40" in misfit(job(prompt=[5] * 30), [6] * 10)
    assert "vocabulary" in misfit(job(prompt=[VOCABULARY]), [])


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
