import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.law.acceptance import Acceptance


def test_an_unknown_drafter_is_believed_the_more_the_surer_it_is() -> None:
    fresh = Acceptance()
    estimates = [fresh.estimate(score) for score in (0.0, 0.2, 0.5, 0.8, 0.99, 1.0)]
    assert estimates == sorted(estimates)
    assert 0.0 < estimates[0] < 0.1
    assert 0.9 < estimates[-1] < 1.0


def test_a_few_verdicts_are_enough_to_trust_a_good_drafter() -> None:
    good = Acceptance()
    for _ in range(20):
        good.learn(0.6, accepted=True)
    assert good.estimate(0.6) > 0.9


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=300))
def test_no_history_of_verdicts_breaks_the_estimate(verdicts: list[tuple[float, bool]]) -> None:
    drafter = Acceptance()
    for score, accepted in verdicts:
        drafter.learn(score, accepted)
    for score in (0.0, 0.5, 1.0):
        assert 0.0 < drafter.estimate(score) < 1.0
    assert 0.0 < drafter.mean < 1.0


def test_a_liar_is_found_out() -> None:
    liar = Acceptance()
    for _ in range(100):
        liar.learn(0.99, accepted=False)
    assert liar.estimate(0.99) < 0.05


def test_confidences_are_calibrated_apart() -> None:
    drafter = Acceptance()
    for index in range(1000):
        drafter.learn(0.95, accepted=index % 10 != 0)
        drafter.learn(0.55, accepted=index % 2 == 0)
    assert drafter.estimate(0.95) == pytest.approx(0.9, abs=0.05)
    assert drafter.estimate(0.55) == pytest.approx(0.5, abs=0.05)


def test_old_verdicts_fade() -> None:
    drafter = Acceptance()
    for _ in range(1000):
        drafter.learn(0.8, accepted=False)
    for _ in range(1500):
        drafter.learn(0.8, accepted=True)
    assert drafter.estimate(0.8) > 0.9
