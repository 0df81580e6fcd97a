"""How cores are divided among services that start one by one."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.machine import threads


def divided(cores: int, targets: int, drafters: int) -> tuple[list[int], list[int]]:
    """What all get together: drafters a quarter, or one each up to half, and targets the rest."""
    drafts = threads.for_drafters(cores, targets, drafters)
    return threads.evenly(cores - drafts, targets), threads.evenly(drafts, drafters)


@pytest.mark.parametrize(
    ("cores", "targets", "drafters", "expected"),
    [
        (2, 1, 1, ([1], [1])),
        (2, 1, 0, ([2], [])),
        (8, 1, 1, ([6], [2])),
        (16, 1, 3, ([12], [2, 1, 1])),
        (8, 0, 1, ([], [8])),
        (8, 0, 3, ([], [3, 3, 2])),
        (8, 0, 0, ([], [])),
        (8, 1, 9, ([4], [1] * 9)),
        (2, 1, 5, ([1], [1, 1, 1, 1, 1])),
        (1, 1, 1, ([1], [1])),
        (9, 2, 1, ([4, 3], [2])),
    ],
)
def test_threads_are_divided(cores: int, targets: int, drafters: int, expected: tuple[list[int], list[int]]) -> None:
    assert divided(cores, targets, drafters) == expected


def test_who_is_alone_takes_all_cores() -> None:
    assert threads.share(8, True, 0, [0], []) == 8
    assert threads.share(8, False, 0, [], [0]) == 8


def test_what_was_taken_stays_taken() -> None:
    assert threads.share(8, False, 0, [5], [0]) == 3, "five were asked for"
    assert threads.share(8, True, 0, [0], [1]) == 7, "the drafter was told to take one"
    assert threads.share(8, True, 0, [5, 0], []) == 3
    assert threads.share(8, False, 0, [8], [0]) == 1, "nothing is left, and one thread is the least"


def test_a_drafter_that_was_first_does_not_hold_the_machine_against_a_target() -> None:
    assert threads.share(8, True, 0, [0], [8]) == 6


@given(st.integers(1, 64), st.integers(0, 3), st.integers(0, 4))
def test_started_together_in_any_order_they_take_what_they_would_be_given_together(
    cores: int, targets: int, drafters: int
) -> None:
    """All have arrived; then one after the other chooses, and sees what those before it took."""
    expected = tuple(map(sorted, divided(cores, targets, drafters)))
    everybody = [("target", index) for index in range(targets)] + [("drafter", index) for index in range(drafters)]
    if cores < 2 * len(everybody):
        return  # nobody can have less than one thread: then more is taken than there is
    for order in list(permutations(everybody))[:24]:
        taken = {"target": [0] * targets, "drafter": [0] * drafters}
        for kind, index in order:
            waiting = [place for place, count in enumerate(taken[kind]) if not count]
            taken[kind][index] = threads.share(
                cores, kind == "target", waiting.index(index), taken["target"], taken["drafter"]
            )
        assert (sorted(taken["target"]), sorted(taken["drafter"])) == expected
