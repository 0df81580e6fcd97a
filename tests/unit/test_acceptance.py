import pytest

from services.verifier.acceptance import Acceptance


def test_an_unknown_drafter_is_believed_a_little() -> None:
    fresh = Acceptance()
    assert fresh.estimate(0.9) == pytest.approx(0.9)
    assert fresh.estimate(1.0) < 1.0
    assert fresh.estimate(0.0) > 0.0


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
    for _ in range(600):
        drafter.learn(0.8, accepted=True)
    assert drafter.estimate(0.8) > 0.9
