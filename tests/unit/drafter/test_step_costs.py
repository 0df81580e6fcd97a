"""Cheap rows: where several cost little more than one, a step draws at several places; where they are dear, at one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.drafter.model_proposer import MOST, ModelProposer
from services.drafter.proposer import Draft, Opening
from services.drafter.step_costs import ROW_COUNTS, measure, worth
from shared.law import prefix
from shared.law.speedup import RowCosts
from shared.wire.messages import Sampling
from tests.examples import few
from tests.toys import EOG, VOCABULARY, ToyTarget

CHEAP = RowCosts({1: 2.0, 2: 2.02, 4: 2.05, 8: 2.1})
DEAR = RowCosts({1: 10.0, 2: 20.0, 4: 25.0, 8: 40.0})
PROMPT = (5, 6, 7)


def opening(name: str = "r1", lead: int = 12, prompt: tuple[int, ...] = PROMPT, seed: int = 11) -> Opening:
    sampling = Sampling(seed=seed, logit_bias=((EOG, -100.0),))
    return Opening(name, prompt, (), sampling, frozenset({EOG}), VOCABULARY, lead)


def unsure(branches: int = 7, n_ctx: int = 256) -> ToyTarget:
    return ToyTarget(n_ctx=n_ctx, sharpness=0.5, branches=branches)


def drafts_of(proposer: ModelProposer, steps: int = 1000) -> list[Draft]:
    drafts: list[Draft] = []
    for _ in range(steps):
        if proposer.busy:
            drafts += proposer.step()
    return drafts


def test_where_rows_are_cheap_a_step_draws_behind_the_second_best_as_well() -> None:
    target = unsure()
    proposer = ModelProposer(target, CHEAP)
    proposer.open(opening())
    (first,) = proposer.step()
    second = {draft.prefix_hash for draft in proposer.step()}
    assert second >= {prefix.extend(first.prefix_hash, token) for token in first.tokens[:2]}
    assert len(target.decodes) == 2


def test_the_best_chain_is_drafted_as_fast_as_alone_and_its_rivals_come_on_top() -> None:
    alone, cheap = ModelProposer(unsure(branches=0)), ModelProposer(unsure(), CHEAP)
    for proposer in (alone, cheap):
        proposer.open(opening(lead=6))
    chain, tree = drafts_of(alone), drafts_of(cheap)
    assert {draft.prefix_hash for draft in chain[:3]} < {draft.prefix_hash for draft in tree}
    assert len(tree) > 2 * len(chain)


def test_where_rows_are_dear_nothing_changes() -> None:
    found = []
    for costs in (None, DEAR):
        proposer = ModelProposer(unsure(), costs)
        proposer.open(opening())
        found.append(drafts_of(proposer))
    assert found[0] == found[1]


def test_every_session_gets_its_best_place_however_dear_rows_are() -> None:
    for costs in (CHEAP, DEAR):
        proposer = ModelProposer(unsure(), costs)
        for index in range(3):
            proposer.open(opening(f"r{index}", prompt=(5, 6, index + 2)))
        for _ in range(5):
            assert {draft.request_id for draft in proposer.step()} == {"r0", "r1", "r2"}


def test_rows_are_added_while_that_makes_the_step_more_useful_per_time() -> None:
    assert worth(1.0, [0.5, 0.2, 0.05], 1, CHEAP) == 3
    assert worth(1.0, [0.5, 0.2, 0.005], 1, CHEAP) == 2
    assert worth(1.0, [0.5, 0.2, 0.05], 1, DEAR) == 0
    assert worth(3.0, [0.9, 0.9, 0.9, 0.9, 0.9], 3, RowCosts({1: 10.0, 4: 16.0, 5: 20.0, 8: 20.5})) == 5
    assert worth(0.1, [0.1] * 7, 1, RowCosts({1: 10.0, 8: 40.0})) == 1, "a step of four times the length is no step"


def test_places_that_share_a_step_have_a_branch_each() -> None:
    target = unsure(branches=2)
    proposer = ModelProposer(target, CHEAP)
    proposer.open(opening())
    proposer.step()
    assert len(proposer.step()) == 3
    assert sorted(target.decodes[1].sequences) == [(0,), (4,), (5,)]


def test_guesses_fit_the_cells_of_their_session() -> None:
    target = unsure(n_ctx=40)
    proposer = ModelProposer(target, CHEAP)
    proposer.open(opening(lead=10, prompt=tuple(range(2, 20))))
    drafts_of(proposer)
    held = {tuple(cells[:length]) for cells in target.cells for length in range(1, len(cells) + 1)}
    assert len(held) <= 40


@settings(max_examples=few(40))
@given(st.integers(0, 10_000), st.sampled_from([1, 3, 7]))
def test_whatever_the_target_decides_rows_have_the_past_that_their_sequence_says(seed: int, branches: int) -> None:
    """The toy target checks positions; here every draft must hang from a prefix that was told before."""
    source = random.Random(seed)
    target = ToyTarget(n_ctx=96, branches=branches, sharpness=source.choice([0.5, 1.0]))
    proposer = ModelProposer(target, CHEAP)
    starts = [opening(name, lead=9, prompt=(5, 6, index + 2)) for index, name in enumerate("ab")]
    committed: dict[str, list[int]] = {}
    paths: dict[str, dict[int, list[int]]] = {}
    for start in starts:
        proposer.open(start)
        committed[start.request_id] = []
        paths[start.request_id] = {prefix.extend_all(prefix.EMPTY, start.prompt): []}
    for _ in range(12):
        for draft in drafts_of(proposer, source.randrange(6)):
            known = paths[draft.request_id]
            assert len(known[draft.prefix_hash]) == draft.base
            for token in draft.tokens:
                known[prefix.extend(draft.prefix_hash, token)] = [*known[draft.prefix_hash], token]
        for start in starts:
            done, known = committed[start.request_id], paths[start.request_id]
            right = source.choice([path for path in known.values() if path[: len(done)] == done])
            news = [*right[len(done) :], source.randrange(2, VOCABULARY)][: source.randrange(1, 5)]
            assert proposer.commit(start.request_id, len(done), tuple(news), 9)
            done += news
            known[prefix.extend_all(prefix.EMPTY, [*start.prompt, *done])] = list(done)
    for start in starts:
        proposer.close(start.request_id)
    assert all(not cells for cells in target.cells[4:])


# ---------------------------------------------------------------- the measurement


class Clock:
    """Moves with decodes only: by a step's cost; the first of each size takes five times as long."""

    def __init__(self, ms: dict[int, float]) -> None:
        self._costs = RowCosts(ms)
        self.now = 0.0
        self.seen: list[int] = []

    def decode(self, rows: int) -> None:
        warming = rows not in self.seen
        self.seen.append(rows)
        self.now += self._costs(rows) / 1000 * (5 if warming else 1)

    def __call__(self) -> float:
        return self.now


def test_steps_are_measured_warm_and_leave_no_trace() -> None:
    clock = Clock({1: 2.0, 2: 2.1, 8: 2.5})
    target = ToyTarget(took=clock.decode)
    found = measure(target, range(2, 40), 3, clock)
    assert list(found) == list(ROW_COUNTS)
    assert found[1] == pytest.approx(2.0)
    assert found[8] == pytest.approx(2.5)
    assert not any(target.cells)


def test_a_slow_model_is_not_measured_for_long() -> None:
    clock = Clock({1: 200.0, 2: 500.0, 8: 900.0})
    target = ToyTarget(took=clock.decode)
    found = measure(target, range(2, 40), 3, clock)
    assert list(found) == [1]
    assert len(clock.seen) <= 4
    assert worth(1.0, [1.0], 1, RowCosts(found)) == 0


def test_a_short_text_gives_a_short_table() -> None:
    assert list(measure(ToyTarget(), range(2, 7), 3)) == [1, 2, 4]


def test_no_step_has_more_outputs_than_the_target_makes_room_for() -> None:
    target = ToyTarget(n_ctx=256, sequences=3, sharpness=0.2, branches=7)
    proposer = ModelProposer(target, RowCosts({1: 2.0, 64: 2.0}))
    for index in range(3):
        proposer.open(opening(f"r{index}", lead=60, prompt=(5, 6, index + 2)))
    drafts_of(proposer, 20)
    assert max(sum(rows.outputs) for rows in target.decodes) == 3 * MOST == 24


def test_the_text_that_steps_stand_on_takes_no_room_for_logits() -> None:
    """One session's drafter has room for the logits of eight rows, and its probe text is longer."""
    target = ToyTarget()
    measure(target, range(2, 60), 3)
    assert max(sum(rows.outputs) for rows in target.decodes) == 8
