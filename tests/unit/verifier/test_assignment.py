"""Drafters are assigned evenly, no two alike to one request, none that adds nothing, and each of them is told."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.assignment import BARRED_ROUNDS, STAY_ROUNDS
from services.verifier.contributions import TRIAL_ROUNDS, Contributions
from services.verifier.engine import Engine
from services.verifier.generation import Generation
from shared.law import prefix
from shared.law.speedup import RowCosts
from shared.wire.jobs import Claim
from shared.wire.messages import DrafterCard, Proposal, Sampling, Speculation
from tests.examples import few
from tests.toys import EOG, ToyTarget, drafter_card, job, plain_answer

ENDLESS = Sampling(seed=1, logit_bias=((EOG, -100.0),))


def engine(*cards: DrafterCard, n_ctx: int = 1200) -> Engine:
    made = Engine(
        ToyTarget(n_ctx=n_ctx, sequences=16, branches=2),
        RowCosts({1: 10.0, 2: 10.1, 64: 16.0}),
        [EOG],
        clock=lambda: 0.0,
    )
    made.drafters.update(cards)
    return made


def admit(engine: Engine, name: str, speculation: Speculation = Speculation.ALWAYS) -> Generation:
    request = job(name, max_tokens=1100, sampling=ENDLESS, speculation=speculation)
    return engine.admit(Claim(job=request, epoch=1, committed=0, remaining_ms=10_000), [])


def loads(engine: Engine) -> list[int]:
    return sorted((drafter.requests for drafter in engine.drafters), reverse=True)


def equals(number: int) -> list[DrafterCard]:
    return [drafter_card(f"d{index}") for index in range(number)]


# ---------------------------------------------------------------- spread


def test_eight_requests_on_four_equal_drafters_are_two_each_and_a_fifth_relieves_one() -> None:
    one = engine(*equals(4))
    generations = [admit(one, f"r{index}") for index in range(8)]
    opened, closed = one.reassign()
    assert (len(opened), closed, loads(one)) == (8, [], [2, 2, 2, 2])
    assert [len(generation.sessions) for generation in generations] == [1] * 8
    one.drafters.update(equals(5))
    opened, closed = one.reassign()
    assert loads(one) == [2, 2, 2, 1, 1]
    [(moved, left)], [(same, joined)] = closed, opened
    assert (moved is same, joined) == (True, "d4")
    assert list(moved.sessions) == [joined] != [left]


def test_requests_of_a_drafter_that_leaves_go_to_the_others() -> None:
    one = engine(*equals(4))
    for index in range(8):
        admit(one, f"r{index}")
    one.reassign()
    one.drafters.update(equals(3))
    opened, closed = one.reassign()
    assert (len(opened), closed, loads(one)) == (2, [], [3, 3, 2])


def test_when_requests_end_the_rest_is_evened_out() -> None:
    one = engine(*equals(2))
    for index in range(6):
        admit(one, f"r{index}")
    one.reassign()
    for generation in [generation for generation in one.running if "d0" in generation.sessions]:
        one.drop(generation)
    assert one.assignment.due
    one.reassign()
    assert (loads(one), one.assignment.due) == ([2, 1], False)


def test_a_request_that_was_moved_stays_for_a_while() -> None:
    one = engine(*equals(1))
    for name in "abcd":
        admit(one, name)
    one.reassign()
    one.drafters.update(equals(2))
    assert (len(one.reassign()[1]), loads(one)) == (2, [2, 2])
    for generation in [generation for generation in one.running if "d0" in generation.sessions]:
        one.drop(generation)
    assert (one.reassign(), loads(one)) == (([], []), [2, 0])
    for generation in one.running:
        generation.rounds += STAY_ROUNDS
    assert (len(one.reassign()[1]), loads(one)) == (1, [1, 1])


def test_the_least_loaded_comes_first_and_of_those_the_fastest() -> None:
    one = engine(*equals(3))
    for name, step_us, requests in (("d0", 9000, 0), ("d1", 3000, 0), ("d2", 1000, 1)):
        one.drafters[name].observe_step(step_us)
        one.drafters[name].requests = requests
    assert one.assignment.enlist(admit(one, "r"), 0.0) == ["d1"]


def test_a_much_slower_equal_is_no_relief() -> None:
    one = engine(*equals(1))
    for name in "abc":
        admit(one, name)
    one.reassign()
    one.drafters.update(equals(2))
    one.drafters["d0"].observe_step(1000)
    one.drafters["d1"].observe_step(9000)
    assert one.reassign() == ([], [])


def test_a_drafter_gets_no_more_requests_than_it_has_room_for() -> None:
    one = engine(drafter_card("d", capacity=1))
    first, second = admit(one, "a"), admit(one, "b")
    assert [pair[0] for pair in one.reassign()[0]] == [first]
    one.drop(first)
    assert [pair[0] for pair in one.reassign()[0]] == [second]


# ---------------------------------------------------------------- who works together


def test_two_models_and_one_lookup_work_together_but_never_two_that_say_the_same() -> None:
    cards = [
        drafter_card("a1", model="small"),
        drafter_card("a2", model="small"),
        drafter_card("b", model="larger"),
        drafter_card("c", model="other"),
        drafter_card("l1", "lookup", model=""),
        drafter_card("l2", "lookup", model=""),
    ]
    one = engine(*cards)
    generations = [admit(one, name) for name in "xyz"]
    one.reassign()
    for generation in generations:
        kinds = [one.drafters[name].card.kind for name in generation.sessions]
        assert sorted(kinds) == ["lookup", "model", "model"]
        assert not {"a1", "a2"} <= generation.sessions.keys()


@pytest.mark.parametrize("speculation", [Speculation.OFF, Speculation.ALWAYS])
def test_a_request_that_does_not_want_drafts_takes_no_place(speculation: Speculation) -> None:
    one = engine(*equals(1))
    admit(one, "r", speculation)
    one.reassign()
    assert loads(one) == [int(speculation is Speculation.ALWAYS)]


# ---------------------------------------------------------------- what each adds


class Talk:
    """One request whose drafters say what the test lets them say, round after round."""

    def __init__(self, *cards: DrafterCard) -> None:
        self.engine = engine(*cards)
        self.generation = admit(self.engine, "r")
        self.closed: list[str] = []
        self.opened = [name for _, name in self.engine.reassign()[0]]
        self.answer = plain_answer(self.generation.job, n_ctx=1200)
        self._round = 0
        self.rounds(1, {})
        self._round = 0

    def rounds(self, number: int, right: Mapping[str, Collection[int]]) -> None:
        """Each drafter guesses one token a round, right in those of eight rounds that are its."""
        for _ in range(number):
            for name, places in right.items():
                self.propose(name, self._round % 8 in places)
            self._round += 1
            round = self.engine.plan(may_wait=False)
            decoded = self.engine.run(round)
            self.engine.finish(decoded)
            if self.engine.assignment.due:
                opened, closed = self.engine.reassign()
                self.opened += [name for _, name in opened]
                self.closed += [name for _, name in closed]

    def propose(self, name: str, right: bool) -> None:
        at = self.generation.offset
        hashed = prefix.extend_all(prefix.EMPTY, [*self.generation.job.prompt, *self.answer[:at]])
        token = self.answer[at] if right else (self.answer[at] + 1) % 64
        proposal = Proposal(
            request_id="r", epoch=1, base=at, prefix_hash=hashed, tokens=(token,), scores=(0.9,), drafter=name,
            step_us=1000,
        )  # fmt: skip
        self.engine.take([proposal], 0.0)


SMALL, LARGE, LOOKUP = (
    drafter_card("small", model="s"),
    drafter_card("large", model="l"),
    drafter_card("look", "lookup", model=""),
)


def test_a_drafter_that_adds_nothing_is_released_and_tried_again_later() -> None:
    talk = Talk(SMALL, LARGE)
    talk.rounds(TRIAL_ROUNDS, {"small": range(8), "large": (0, 2, 4, 6)})
    assert talk.closed == ["large"]
    assert list(talk.generation.sessions) == ["small"]
    assert talk.engine.drafters["large"].requests == 0
    talk.rounds(BARRED_ROUNDS - 1, {"small": range(8)})
    assert talk.opened.count("large") == 1
    talk.rounds(1, {"small": range(8)})
    assert (talk.opened.count("large"), talk.engine.drafters["large"].requests) == (2, 1)


def test_what_a_released_drafter_still_sends_is_ignored() -> None:
    talk = Talk(SMALL, LARGE)
    talk.rounds(TRIAL_ROUNDS, {"small": range(8), "large": ()})
    before = talk.engine.drafters["large"].counts
    talk.rounds(3, {"large": range(8)})
    assert talk.engine.drafters["large"].counts == before
    assert talk.generation.trie.root.guesses.keys() <= {"small"}


def test_drafters_that_complement_each_other_both_stay() -> None:
    talk = Talk(SMALL, LARGE)
    talk.rounds(200, {"small": (0, 1, 2, 3, 4, 5, 6), "large": (0, 7)})
    assert talk.closed == []


def test_the_only_model_drafter_is_not_released_for_lookup() -> None:
    talk = Talk(SMALL, LOOKUP)
    talk.rounds(200, {"small": (0, 1), "look": range(8)})
    assert talk.closed == []


def test_a_drafter_that_never_says_anything_true_is_released() -> None:
    talk = Talk(SMALL, LARGE)
    talk.rounds(TRIAL_ROUNDS, {"small": range(8), "large": ()})
    assert talk.closed == ["large"]


def test_one_that_still_reads_its_prompt_is_not_judged() -> None:
    talk = Talk(SMALL, LARGE)
    talk.rounds(TRIAL_ROUNDS + 20, {"small": range(8)})
    assert talk.closed == []


def test_of_two_that_say_the_same_the_slower_one_goes() -> None:
    talk = Talk(SMALL, LARGE)
    for _ in range(TRIAL_ROUNDS):
        talk.engine.drafters["small"].step_ms = 9.0
        talk.rounds(1, {"small": range(8), "large": range(8)})
    assert talk.closed == ["small"]


def test_whoever_was_released_comes_back_when_the_other_one_is_gone() -> None:
    talk = Talk(SMALL, LARGE)
    talk.rounds(TRIAL_ROUNDS, {"small": range(8), "large": ()})
    talk.engine.drafters.update([LARGE])
    assert talk.engine.reassign() == ([(talk.generation, "large")], [])


def test_equals_of_a_released_drafter_are_not_tried_in_its_place() -> None:
    talk = Talk(SMALL, LARGE)
    talk.engine.drafters.update([SMALL, LARGE, drafter_card("twin", model="l")])
    talk.rounds(TRIAL_ROUNDS, {"small": range(8), "large": ()})
    assert (talk.closed, list(talk.generation.sessions)) == (["large"], ["small"])


def test_a_third_model_is_tried_in_the_place_of_a_released_one() -> None:
    talk = Talk(LARGE, SMALL)
    talk.engine.drafters.update([SMALL, LARGE, drafter_card("third", model="t")])
    talk.rounds(TRIAL_ROUNDS, {"small": range(8), "large": ()})
    assert (talk.closed, set(talk.generation.sessions)) == (["large"], {"small", "third"})


def test_added_tokens_are_those_that_nobody_else_had_guessed() -> None:
    talk = Talk(SMALL, LARGE)
    talk.rounds(16, {"small": (0, 1, 2, 3), "large": (3, 4, 5)})
    added = {drafter.card.id: drafter.counts.added for drafter in talk.engine.drafters}
    assert added == {"small": 6, "large": 4}


@given(st.lists(st.lists(st.sets(st.sampled_from("abc")), max_size=6), max_size=150))
def test_no_token_is_added_by_two_and_the_last_is_never_released(rounds: list[list[set[str]]]) -> None:
    """Whatever was accepted: of three drafters released one after another, one remains."""
    contributions = Contributions()
    steps = dict.fromkeys("abc", 1.0)
    for name in steps:
        contributions.heard(name)
    for guessers in rounds:
        alone = contributions.observe(guessers)
        assert len(alone) == sum(len(names) == 1 for names in guessers)
    while (released := contributions.redundant(steps)) is not None:
        del steps[released]
    assert steps


# ---------------------------------------------------------------- every drafter knows

events = st.one_of(
    st.tuples(st.just("join"), st.sampled_from([card.id for card in equals(6)])),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("admit"), st.sampled_from(list(Speculation))),
    st.tuples(st.just("drop"), st.integers(0, 15)),
    st.tuples(st.just("pass"), st.integers(1, 100)),
)


@settings(max_examples=few(100))
@given(st.lists(events, max_size=40))
def test_loads_are_what_drafters_were_told_and_equals_are_even(script: list[tuple[str, object]]) -> None:
    """Joins, leaves, arrivals and ends in any order; what each drafter was told is kept beside the engine."""
    one = engine()
    alive: dict[str, DrafterCard] = {}
    told: set[tuple[str, str]] = set()
    stays: dict[Generation, int] = {}  # the rounds before which a moved request is not moved again
    for index, (event, what) in enumerate(script):
        if event == "join":
            name = str(what)
            model = "ab"[int(name[1:]) % 2]
            alive[name] = drafter_card(name, "lookup" if name == "d5" else "model", model, capacity=3)
        elif event == "leave" and alive:
            gone = sorted(alive)[int(str(what)) % len(alive)]
            del alive[gone]
            told = {pair for pair in told if pair[0] != gone}
        elif event == "admit" and one.sequences.free:
            assert isinstance(what, Speculation)
            admit(one, f"r{index}", what)
        elif event == "drop" and one.running:
            ended = one.running[int(str(what)) % len(one.running)]
            told -= {(name, ended.job.request_id) for name in ended.sessions}
            one.drop(ended)
        elif event == "pass":
            for generation in one.running:
                generation.rounds += int(str(what))
        one.drafters.update(alive.values())
        opened, closed = one.reassign()
        told -= {(name, generation.job.request_id) for generation, name in closed}
        fresh = {(name, generation.job.request_id) for generation, name in opened}
        assert not fresh & told, "no session is opened twice"
        told |= fresh
        stays |= {generation: generation.rounds + STAY_ROUNDS for generation, _ in closed}
        check(one, told, stays)


def check(engine: Engine, told: set[tuple[str, str]], stays: Mapping[Generation, int]) -> None:
    sessions = {(name, generation.job.request_id) for generation in engine.running for name in generation.sessions}
    assert sessions == told
    for drafter in engine.drafters:
        assert drafter.requests == sum(name == drafter.card.id for name, _ in told) <= drafter.card.capacity
    for generation in engine.running:
        kin = [engine.drafters[name].kin for name in generation.sessions]
        assert len(set(kin)) == len(kin) <= 3
    settled = all(generation.rounds >= stays.get(generation, 0) for generation in engine.running)
    for source in engine.drafters:
        for target in engine.drafters:
            even = source.requests - target.requests < 2
            assert even or source.kin != target.kin or not settled
