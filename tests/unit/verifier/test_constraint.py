"""Constrained requests on a toy target: the answer is the masked plain loop's, whatever is guessed, whenever."""

import json
import random
from functools import cache
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.constraint import DOES_NOT_COMPILE, constrain
from services.verifier.engine import GRAMMAR
from services.verifier.generation import Generation
from services.verifier.walk import DEAD_END
from shared.law import sampling
from shared.law.grammar import GrammarError, Grammars, Matcher
from shared.wire.jobs import Claim
from shared.wire.messages import Finish, Job, Sampling, Speculation, ThinkingLimit
from tests.examples import few
from tests.toys import EOG, MARK, VOCABULARY, ToyVocabulary, job, logits_after, plain_answer
from tests.unit.verifier.bench import Bench

TOY = ToyVocabulary()
GRAMMARS = Grammars(TOY)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 999},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "ok"],
    "additionalProperties": False,
}
COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
PERSON = json.dumps({"grammars": [{"json_schema": {"x-guidance": COMPACT, **SCHEMA}}]})
CLOSE = (60, 61, MARK)
ENDLESS = ((EOG, -100.0), (62, -100.0))  # neither ends nor begins to think again


class ConstrainedBench(Bench):
    def admit(self, request: Job, output: list[int] | None = None) -> Generation:
        claim = Claim(job=request, epoch=1, committed=len(output or []), remaining_ms=10_000)
        constraint = constrain(request, output or [], GRAMMARS)
        generation = self.engine.admit(claim, output or [], constraint)
        self.engine.assignment.enlist(generation, self.now * 1000)
        self.answers[request.request_id] = list(output or [])
        return generation

    @property
    def sources(self) -> list[str]:
        return [source for chunk in self.chunks for source in chunk.sources or ("",) * len(chunk.tokens)]


def reference(request: Job) -> list[int]:
    """The plain loop; its grammar starts anew at each token and takes nothing back."""
    start = compiled(request.grammar) if request.grammar else None

    def mask(output: list[int]) -> sampling.Mask | None:
        due = _due(request, output)
        if due is not None:
            return only(due)
        if start is None:
            return None
        matcher = start.copy()
        assert all(map(matcher.push, output))
        return matcher.mask()

    return plain_answer(request, mask=mask)


@cache
def compiled(grammar: str) -> Matcher:
    return GRAMMARS.compile(grammar)


def _due(request: Job, output: list[int]) -> int | None:
    """The token of the close that must come, by the definition for spans that a prompt has opened."""
    thinking = request.thinking
    if thinking is None or thinking.end[0] in output[: thinking.budget]:
        return None
    written = len(output) - thinking.budget
    return thinking.close[written] if 0 <= written < len(thinking.close) else None


def only(token: int) -> sampling.Mask:
    mask = np.zeros(VOCABULARY, np.bool_)
    mask[token] = True
    return mask


def thinking(budget: int, opened: bool = True) -> ThinkingLimit:
    return ThinkingLimit(budget=budget, opened=opened, start=(62,), end=(MARK,), close=CLOSE)


def person(seed: int = 1, **options: Any) -> Job:
    options = {"max_tokens": 60, "grammar": PERSON, "sampling": Sampling(seed=seed), **options}
    return job(**options)


# ------------------------------------------------------------ the answer


drafting = st.sampled_from(["right", "wrong", "lie", "tree", "late", "end", "silent"])
GRAMMARS_OF_JOBS = [
    PERSON,
    'start: "a" /[a-e ]{3,9}/ ("true" | "false")+',
    'start: /[0-9]{1,4}/ | x\nx: "(" x? ")" | "name" x',
    "start: <mark> /[a-z]+/ <mark>",
]


@settings(max_examples=few(60))
@given(
    st.integers(0, 1000),
    st.sampled_from(["stream", "unified"]),
    st.lists(drafting, min_size=1, max_size=30),
    st.sampled_from([0.0, 0.8, 1.0]),
    st.sampled_from(list(Speculation)),
)
def test_no_proposal_of_any_shape_changes_a_constrained_answer(
    seed: int, layout: str, script: list[str], temperature: float, speculation: Speculation
) -> None:
    source = random.Random(seed)
    bench = ConstrainedBench(
        drafters=("d", "e"), unified=layout == "unified", branches=7 if layout == "unified" else 0, sequences=5
    )
    requests = [
        job(
            f"r{index}",
            max_tokens=source.randrange(3, 40),
            sampling=Sampling(seed=seed + index, temperature=temperature, presence_penalty=float(index == 1)),
            speculation=speculation,
            grammar=grammar,
        )
        for index, grammar in enumerate(GRAMMARS_OF_JOBS)
    ]
    requests.append(job("r4", sampling=Sampling(seed=seed, logit_bias=ENDLESS), thinking=thinking(source.randrange(9))))
    answers = {request.request_id: reference(request) for request in requests}
    generations = [bench.admit(request) for request in requests]

    def propose() -> None:
        for generation in generations:
            answer, at = answers[generation.job.request_id], generation.offset
            kind = source.choice(script)
            future = answer[at : at + source.randrange(1, 9)] or [EOG]
            parents: tuple[int, ...] = ()
            if kind == "lie":
                future = [source.randrange(VOCABULARY) for _ in future]
            elif kind == "wrong":
                future = [*future[:-1], source.randrange(VOCABULARY)]
            elif kind == "late":
                at = source.randrange(at + 1)
                future = answer[at : at + 12] or [EOG]
            elif kind == "end":
                future = [*future, EOG, 3, 4]
            elif kind == "tree":
                future = [source.choice([token, source.randrange(VOCABULARY)]) for token in future for _ in range(3)]
                parents = tuple(source.randrange(-1, index) for index in range(len(future)))
            if kind != "silent":
                bench.propose(generation, at, future, source.choice("de"), source.random(), parents)

    bench.finish(propose)
    assert bench.answers == answers


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_always_parses_against_its_schema(seed: int) -> None:
    bench = ConstrainedBench()
    bench.admit(person(seed))
    bench.finish()
    jsonschema.validate(json.loads(TOY.text(bench.answers["r1"])), SCHEMA)
    assert bench.finishes["r1"] is Finish.STOP


@pytest.mark.parametrize("cut", [1, 4, 9, 14])
def test_a_takeover_in_the_middle_continues_the_same_tokens(cut: int) -> None:
    request = person(thinking=None)
    answer = reference(request)
    bench = ConstrainedBench()
    generation = bench.admit(request, answer[:cut])
    bench.finish(lambda: bench.propose(generation, generation.offset, answer[generation.offset :][:2] or [0]))
    assert bench.answers["r1"] == answer


def test_a_takeover_that_finds_other_tokens_than_allowed_is_refused() -> None:
    with pytest.raises(GrammarError, match=DEAD_END):
        constrain(person(), TOY.tokenize("age"), GRAMMARS)


def test_logprobs_are_the_targets_own() -> None:
    request = person(top_logprobs=2)
    bench = ConstrainedBench()
    bench.admit(request)
    bench.finish()
    answer = bench.answers["r1"]
    found = [entry for chunk in bench.chunks for entry in chunk.logprobs]
    rows = [logits_after([*request.prompt, *answer[:offset]]) for offset in range(len(answer))]
    expected = [sampling.log_probabilities(row, token, 2)[0] for row, token in zip(rows, answer, strict=True)]
    assert [entry.logprob for entry in found] == pytest.approx(expected, abs=1e-6)


# ------------------------------------------------------------ drafts


def test_forced_tokens_are_drafts_without_a_drafter_and_all_of_them_are_accepted() -> None:
    bench = ConstrainedBench(drafters=())
    request = person()
    bench.admit(request)
    bench.finish()
    assert bench.answers["r1"] == reference(request)
    assert len(bench.target.decodes) < len(bench.answers["r1"]) / 2
    values = bench.engine.counters.values
    assert values["draft_tokens"] == values["accepted_tokens"] == bench.sources.count(GRAMMAR) > 8


def test_where_speculation_is_off_the_answer_is_the_same_and_nothing_is_drafted() -> None:
    bench = ConstrainedBench(drafters=())
    request = person(speculation=Speculation.OFF)
    bench.admit(request)
    bench.finish()
    assert bench.answers["r1"] == reference(request)
    assert bench.engine.counters.values["draft_tokens"] == 0
    assert set(bench.sources) == {""}


def test_where_rows_are_too_dear_forced_tokens_get_none() -> None:
    bench = ConstrainedBench(costs={1: 10.0, 2: 20.0, 64: 640.0}, drafters=())
    request = person()
    bench.admit(request)
    bench.finish()
    assert bench.answers["r1"] == reference(request)
    assert bench.engine.counters.values["draft_tokens"] == 0


def test_guesses_that_the_grammar_forbids_never_cost_a_row() -> None:
    bench = ConstrainedBench(branches=7)
    generation = bench.admit(person(speculation=Speculation.ALWAYS))
    bench.round()
    bench.propose(generation, 1, TOY.tokenize("abcdef"), score=0.999)
    plan = bench.engine.plan(may_wait=False)
    drafts = plan.entries[0].drafts
    assert drafts
    assert all(node.forced for node in drafts)
    assert not any("d" in node.guesses for node in drafts)


def test_what_must_follow_a_drafters_guess_is_verified_with_it() -> None:
    bench = ConstrainedBench()
    request = person()
    answer = reference(request)
    generation = bench.admit(request)
    matcher = compiled(PERSON).copy()
    opening = len(matcher.forced)
    for size, token in enumerate(answer, start=1):
        assert matcher.push(token)
        if size > opening and matcher.forced:
            break
    bench.round()
    bench.propose(generation, 0, answer[:size], score=0.999)
    drafts = bench.engine.plan(may_wait=False).entries[0].drafts
    assert [node.token for node in drafts] == answer[1 : 1 + len(drafts)]
    assert not drafts[size - 2].forced
    behind = drafts[size - 1 :]
    assert all(node.forced for node in behind)
    assert TOY.text([node.token for node in behind]).endswith('age": ')


def test_forced_tokens_say_nothing_about_a_drafter() -> None:
    """Neither for one that guesses them rightly nor for one that is forbidden to be wrong."""
    bench = ConstrainedBench(drafters=("good", "bad"))
    request = job(max_tokens=30, grammar='start: "name age true false name"', speculation=Speculation.ALWAYS)
    answer = reference(request)
    generation = bench.admit(request)
    before = {drafter.card.id: drafter.acceptance.estimate(0.9) for drafter in bench.engine.drafters}

    def propose() -> None:
        bench.propose(generation, generation.offset, answer[generation.offset :][:3] or [0], "good")
        bench.propose(generation, generation.offset, [5, 6, 7], "bad")

    bench.finish(propose)
    assert bench.answers["r1"] == answer
    for drafter in bench.engine.drafters:
        assert drafter.acceptance.estimate(0.9) == before[drafter.card.id]
        assert (drafter.counts.drafted, drafter.counts.accepted, drafter.counts.added) == (0, 0, 0)


# ------------------------------------------------------------ ends


def test_an_answer_ends_as_soon_as_nothing_may_follow() -> None:
    """No row is spent on drawing the end."""
    bench = ConstrainedBench(drafters=())
    bench.admit(job(max_tokens=50, grammar='start: "true"', sampling=Sampling(seed=1, logit_bias=ENDLESS)))
    bench.finish()
    assert TOY.text(bench.answers["r1"]) == "true"
    assert bench.finishes["r1"] is Finish.STOP
    assert len(bench.target.decodes) == 1


@pytest.mark.parametrize(("bias", "tokens", "finish"), [(100.0, 1, Finish.STOP), (-100.0, 20, Finish.LENGTH)])
def test_an_answer_that_may_end_ends_by_the_targets_own_choice(bias: float, tokens: int, finish: Finish) -> None:
    bench = ConstrainedBench(drafters=())
    bench.admit(job(max_tokens=20, grammar="start: /[a-z]+/", sampling=Sampling(seed=1, logit_bias=((EOG, bias),))))
    bench.finish()
    assert len(bench.answers["r1"]) == tokens
    assert bench.finishes["r1"] is finish


def test_a_dead_end_ends_its_request_with_an_error_and_no_other() -> None:
    """No token of this vocabulary has the text that the grammar wants."""
    bench = ConstrainedBench(drafters=())
    other = job("other")
    bench.admit(job("dead", grammar='start: "name" ("é" | "#")'))
    bench.admit(other)
    bench.finish()
    assert bench.finishes["dead"] is Finish.ERROR
    assert TOY.text(bench.answers["dead"]) == "name"
    assert [chunk.detail for chunk in bench.chunks if chunk.detail] == [DEAD_END]
    assert bench.answers["other"] == reference(other)


@pytest.mark.parametrize("drafted", [False, True])
def test_a_grammar_that_forces_an_endless_text_ends_the_request(drafted: bool) -> None:
    bench = ConstrainedBench()
    generation = bench.admit(job(max_tokens=30, grammar='start: "a" x\nx: "b" x'))
    if drafted:
        bench.propose(generation, 0, TOY.tokenize("abbb"))
    bench.finish()
    assert bench.answers["r1"] == []
    assert bench.finishes["r1"] is Finish.ERROR


def test_a_grammar_that_does_not_compile_is_refused_with_a_sentence_for_the_client() -> None:
    with pytest.raises(GrammarError) as raised:
        constrain(job(grammar="start: <secret"), [], GRAMMARS)
    assert str(raised.value) == DOES_NOT_COMPILE


def test_a_matcher_that_failed_on_a_guess_is_made_anew() -> None:
    constraint = constrain(person(), [], GRAMMARS)
    assert constraint is not None
    start = TOY.tokenize('{"name": ')
    assert constraint.commit(start)
    before = [constraint.mask(), constraint.forced()]
    assert not constraint.stand([TOY.tokenize("{")[0]])
    after = [constraint.mask(), constraint.forced()]
    assert str(before) == str(after)
    assert constraint.stand(TOY.tokenize('"a'))


# ------------------------------------------------------------ thinking


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_a_budget_closes_the_span_at_its_exact_offset(budget: int) -> None:
    request = job(max_tokens=20, sampling=Sampling(seed=3, logit_bias=(*ENDLESS, (MARK, -100.0))))
    request = msgspec.structs.replace(request, thinking=thinking(budget))
    bench = ConstrainedBench(drafters=())
    bench.admit(request)
    bench.finish()
    answer = bench.answers["r1"]
    free = plain_answer(msgspec.structs.replace(request, thinking=None))
    assert answer[:budget] == free[:budget]
    assert tuple(answer[budget : budget + len(CLOSE)]) == CLOSE
    assert answer == reference(request)
    assert len(answer) == 20


def test_the_close_is_a_draft_too() -> None:
    bench = ConstrainedBench(drafters=())
    bench.admit(job(max_tokens=20, sampling=Sampling(seed=3, logit_bias=ENDLESS), thinking=thinking(4)))
    bench.finish()
    assert bench.sources.count(GRAMMAR) == len(CLOSE)


def test_a_takeover_within_the_close_goes_on_with_it() -> None:
    request = job(max_tokens=20, sampling=Sampling(seed=3, logit_bias=ENDLESS), thinking=thinking(4))
    answer = reference(request)
    for cut in (2, 4, 5, 6, 7, 9):
        bench = ConstrainedBench(drafters=())
        bench.admit(request, answer[:cut])
        bench.finish()
        assert bench.answers["r1"] == answer


def test_a_budget_composes_with_a_grammar() -> None:
    grammar = "start: /[^\\x00]*/ <mark> obj\nobj: %json " + json.dumps({"x-guidance": COMPACT, **SCHEMA})
    texts = TOY.tokenize("me")
    close = ThinkingLimit(budget=5, opened=True, start=(62,), end=(MARK,), close=(*texts, MARK))
    parameters = Sampling(seed=3, logit_bias=(*ENDLESS, (MARK, -100.0)))
    bench = ConstrainedBench(drafters=())
    bench.admit(job(max_tokens=60, sampling=parameters, grammar=grammar, thinking=close))
    bench.finish()
    answer = bench.answers["r1"]
    assert tuple(answer[5 : 5 + len(close.close)]) == close.close
    jsonschema.validate(json.loads(TOY.text(answer[5 + len(close.close) :])), SCHEMA)


def test_a_close_that_the_grammar_never_allows_leaves_the_grammar_its_way() -> None:
    bench = ConstrainedBench(drafters=())
    request = job(max_tokens=40, sampling=Sampling(seed=3), grammar='start: "name true"', thinking=thinking(2))
    bench.admit(request)
    bench.finish()
    assert TOY.text(bench.answers["r1"]) == "name true"


def test_a_request_without_constraints_has_none() -> None:
    assert constrain(job(), [], GRAMMARS) is None
