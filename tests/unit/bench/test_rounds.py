"""What `make bench ARGS=--rounds` writes."""

from itertools import count

import pytest

from bench import rounds
from bench.paced import bigram
from bench.rounds import CASES, PHASES, Rounds


def test_each_phase_of_a_round_has_its_time() -> None:
    ticks = count()
    found = rounds.measure(2, clock=lambda: next(ticks) / 1e6)
    assert list(found["microseconds"]) == list(CASES)
    for spent in found["microseconds"].values():
        assert list(spent) == list(PHASES)
        assert all(microseconds >= 1.0 for microseconds in spent.values())
    assert rounds.table(found).row_count == len(CASES)


@pytest.mark.parametrize("name", CASES)
def test_every_round_has_as_many_draws_as_its_case_says(name: str) -> None:
    case, ticks = CASES[name], count()
    one = Rounds(bigram.table(), case, 23, clock=lambda: next(ticks) / 1e6)
    one.run(20)  # until the drafter is known
    before = one.tokens
    one.run(3)
    assert f"{(one.tokens - before) // 3} draws" in name
