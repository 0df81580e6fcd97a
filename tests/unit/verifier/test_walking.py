"""Walking rounds on a toy target: whatever is proposed, whenever, the answer is the plain loop's."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from services.verifier.trie import Trie
from services.verifier.walk import BROKEN, Rule, walk
from shared.law.acceptance import COPIED
from shared.wire.jobs import Claim
from shared.wire.messages import Finish, Job, Sampling, Speculation, TokenLogprob
from tests.toys import EOG, VOCABULARY, breaking, job, plain_answer
from tests.unit.verifier.bench import Bench


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
        min_rows=2 if layout == "padded" else 1,
    )
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


def test_branches_copy_only_what_is_new_since_their_last_round() -> None:
    bench = Bench(branches=3, max_rows=128)
    request = job(
        prompt=[2 + step % 50 for step in range(100)],
        max_tokens=40,
        sampling=Sampling(seed=2, logit_bias=((EOG, -100.0),)),
        speculation=Speculation.ALWAYS,
    )
    answer = plain_answer(request)
    generation = bench.admit(request)
    bench.round()
    copied = []

    def branch(right: int) -> None:
        """Three guesses for the next token, the right one among them at the place `right`, and one behind each."""
        at, before = generation.offset, bench.target.copied
        guesses = [(answer[at] + 1 + place) % (VOCABULARY - 2) + 2 for place in range(3)]
        guesses[right] = answer[at]
        bench.propose(generation, at, [*guesses, *[answer[at + 1]] * 3], parents=(-1, -1, -1, 0, 1, 2))
        bench.round()
        copied.append(bench.target.copied - before)

    for right in (0, 1, 2, 1, 0):
        branch(right)
    assert copied[0] >= 2 * 100  # two leaves got the whole prompt
    assert max(copied[1:]) <= 3 * 4  # the accepted path, into the request's own sequence and into the other leaves
    assert bench.answers["r1"] == answer[: generation.offset]


def test_branches_are_emptied_with_their_request() -> None:
    bench = Bench(branches=3, sequences=1)
    request = job(max_tokens=8)
    answer = plain_answer(request)
    generation = bench.admit(request)
    bench.round()
    bench.propose(generation, 1, [answer[1], (answer[1] + 1) % VOCABULARY or 2], parents=(-1, -1))
    bench.finish()
    assert any(bench.target.cells[1:])
    other = bench.admit(job("other", prompt=[60, 61, 62]))
    assert bench.target.cells[other.slot.id] == []
    assert not any(bench.target.cells[1:])


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


def test_a_request_past_its_deadline_is_found() -> None:
    bench = Bench()
    generation = bench.admit(job())
    assert bench.engine.expired() == []
    bench.spend(10_001)
    assert bench.engine.expired() == [generation]


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


def test_a_request_made_for_another_target_is_a_misfit() -> None:
    bench = Bench(n_ctx=40)

    def misfit(request: Job, output: list[int]) -> str:
        return bench.engine.misfit(Claim(job=request, epoch=1, committed=len(output), remaining_ms=1), output)

    assert misfit(job(), []) == ""
    assert "context of 40" in misfit(job(prompt=[5] * 40), [])
    assert "context of 40" in misfit(job(prompt=[5] * 30), [6] * 10)
    assert "vocabulary" in misfit(job(prompt=[VOCABULARY]), [])


LAST_GOOD = 6  # output tokens before the toy's logits break


@pytest.mark.parametrize("kind", [math.nan, math.inf])
@pytest.mark.parametrize("sampling", [Sampling(seed=2), Sampling(seed=2, top_k=5), Sampling(seed=2, temperature=0.0)])
@pytest.mark.parametrize("drafted", [False, True])
def test_broken_logits_end_their_own_request_and_no_other(kind: float, sampling: Sampling, drafted: bool) -> None:
    law = replace(sampling, logit_bias=((EOG, -100.0),))
    doomed, other = job("r1", sampling=law), job("r2", prompt=[9, 8, 7], sampling=law)
    answer = plain_answer(doomed)
    bench = Bench(model=breaking([*doomed.prompt, *answer[:LAST_GOOD]], kind))
    generation = bench.admit(doomed)
    bench.admit(other)

    def propose() -> None:
        if drafted and generation in bench.engine.running:
            bench.propose(generation, generation.offset, answer[generation.offset :][:4])

    bench.finish(propose)
    assert bench.answers["r1"] == answer[:LAST_GOOD], "what was drawn before is exact"
    assert bench.finishes["r1"] is Finish.ERROR
    assert [chunk.detail for chunk in bench.chunks if chunk.finish is Finish.ERROR] == [BROKEN]
    assert bench.answers["r2"] == plain_answer(other)


def test_no_request_starts_from_a_context_that_broke_and_an_idle_target_forgets_everything() -> None:
    doomed = job("r1", prompt=range(5, 45))
    bench = Bench(model=breaking(list(doomed.prompt), math.nan))
    for name in ("r2", "r3"):
        bench.admit(job(name, prompt=[9, 8, 7], max_tokens=4))
    bench.admit(doomed)
    bench.round()
    assert bench.finishes["r1"] is Finish.ERROR
    again = bench.admit(job("r4", prompt=[*doomed.prompt, 9], max_tokens=4))
    assert again.cached == 0
    bench.finish()
    assert bench.target.cleared == 0
    bench.admit(job("r5", prompt=[9, 8, 7], max_tokens=4))
    assert bench.target.cleared == 1
    bench.finish()
    assert bench.answers["r5"] == plain_answer(job(prompt=[9, 8, 7], max_tokens=4))


def test_log_probabilities_of_a_forced_token_are_not_made_from_broken_logits() -> None:
    """A forced token needs no logits, but their caller asked for them."""
    root = Trie([1], []).root
    rows = {root: breaking([1], math.nan)([1])}
    found = walk(root, rows, Sampling(seed=1), None, [EOG], 3, 2, Forcing())
    assert (found.fault, found.tokens) == (BROKEN, [])
    found = walk(root, rows, Sampling(seed=1), None, [EOG], 3, -1, Forcing())
    assert (found.fault, found.tokens) == ("", [17])


class Forcing(Rule):
    def forced(self) -> Sequence[int]:
        return (17,)
