"""Whether speculation pays: the answer follows from what was measured, and the reason names what is in the way."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.law import payoff as reasons
from shared.law.payoff import MAX_WIDTH, WORTH, Measurement, best, payoff, perfect_drafts_pay, ready, sentence
from shared.law.speedup import RowCosts, expected_tokens

CHEAP = ((1, 10.0), (8, 12.0), (16, 14.0))
STAIRS = ((1, 10.0), (2, 16.0), (4, 24.0), (16, 60.0))
DEAR = ((1, 10.0), (8, 80.0), (16, 160.0))


def test_cheap_rows_pay_and_dear_rows_do_not() -> None:
    assert payoff(Measurement(row_ms=CHEAP)).width > 3
    dear = payoff(Measurement(row_ms=DEAR, alpha=0.99))
    assert (dear.width, dear.speedup) == (0, 1.0)
    assert dear.reason == f"{reasons.TOO_DEAR} (8 rows cost 8.0 single steps)"


def test_the_costs_of_one_measurement_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[RowCosts] = []

    class Counted(RowCosts):
        def __init__(self, measured: Mapping[int, float]) -> None:
            super().__init__(measured)
            made.append(self)

    monkeypatch.setattr(reasons, "RowCosts", Counted)
    poor = Measurement(row_ms=((1, 10.0), (2, 16.5), (4, 24.5), (16, 61.0)), alpha=0.3, draft_ms=1.0)
    assert payoff(poor).reason.startswith(reasons.TOO_POOR)
    assert sentence(poor)
    assert len(made) == 1


def test_free_rows_pay_up_to_the_limit() -> None:
    found = payoff(Measurement(row_ms=((1, 10.0), (64, 10.0)), alpha=0.9))
    assert found.width == MAX_WIDTH
    assert found.speedup == pytest.approx(expected_tokens(0.9, MAX_WIDTH))


def test_drafts_that_are_always_ready_reach_the_ceiling() -> None:
    found = payoff(Measurement(row_ms=CHEAP, alpha=0.8))
    assert found.expected == pytest.approx(found.ceiling)


def test_a_slow_drafter_bounds_the_gain() -> None:
    slow, fast = (payoff(Measurement(row_ms=CHEAP, alpha=0.9, draft_ms=ms)) for ms in (4.0, 1.0))
    assert 1.0 < slow.expected < fast.expected


def test_poor_acceptance_is_told_with_the_one_that_would_do() -> None:
    poor = Measurement(row_ms=STAIRS, alpha=0.3, draft_ms=1.0)
    reason = payoff(poor).reason
    assert reason.startswith(f"{reasons.TOO_POOR} (acceptance is 0.30, and ")
    needed = float(reason.partition("and ")[2].partition(" ")[0])
    widths = [best(ready(replace(poor, alpha=alpha, draft_ms=0.0))).width for alpha in (needed - 0.01, needed)]
    assert widths[0] == 0 < widths[1]


def test_late_drafts_are_told_with_what_makes_them_late() -> None:
    late = payoff(Measurement(row_ms=CHEAP, alpha=0.7, draft_ms=15.0, round_trip_ms=5.0))
    assert late.reason == f"{reasons.TOO_LATE} (one takes 1.50 of the target's step, the round trip 0.50)"


def test_what_was_seen_decides_over_what_is_expected() -> None:
    assert not payoff(Measurement(row_ms=DEAR, alpha=0.9, seen=2.4)).reason
    assert payoff(Measurement(row_ms=CHEAP, alpha=0.9, seen=1.0)).reason == reasons.NO_GAIN
    assert payoff(Measurement(row_ms=DEAR, alpha=0.9, seen=1.0)).reason.startswith(reasons.TOO_DEAR)


def test_a_model_that_takes_no_drafts_back_has_no_use_for_them() -> None:
    recurrent = Measurement(row_ms=((1, 1.0),), can_roll_back=False)
    assert payoff(recurrent).reason == reasons.NO_ROLLBACK


def test_the_sentence_says_what_the_answer_says() -> None:
    good = Measurement(row_ms=CHEAP, alpha=0.8, draft_ms=1.0, round_trip_ms=1.0)
    found = payoff(good)
    assert sentence(good) == (
        f"speculation pays here: expect {found.expected:.2f}x plain decoding with {found.width} drafts a round at"
        f" acceptance of 0.80 (8 rows cost 1.2 single steps); {found.ceiling:.2f}x if drafts were always ready"
    )
    busy = sentence(replace(good, provisional=True))
    assert busy == f"{sentence(good)} (measured on a busy machine; will measure again)"
    assert "a typical acceptance of 0.70" in sentence(Measurement(row_ms=CHEAP))
    assert sentence(replace(good, seen=2.4)).startswith(
        "speculation pays here: 2.40x plain decoding in the last rounds; "
    )
    assert sentence(Measurement(row_ms=DEAR, alpha=0.8)) == (
        f"speculation does not pay here: {reasons.TOO_DEAR} (8 rows cost 8.0 single steps)"
    )
    assert sentence(Measurement(row_ms=())) == "whether speculation pays is not measured yet"


@given(
    st.lists(st.floats(0.5, 50.0), min_size=1, max_size=6),
    st.none() | st.floats(0, 1),
    st.floats(0, 60.0),
    st.floats(0, 60.0),
    st.none() | st.floats(0.2, 9.0),
)
def test_the_parts_of_an_answer_never_contradict_each_other(
    steps: list[float], alpha: float | None, draft_ms: float, away: float, seen: float | None
) -> None:
    row_ms = tuple((1 << index, sum(steps[: index + 1])) for index in range(len(steps)))
    measured = Measurement(row_ms=row_ms, alpha=alpha, draft_ms=draft_ms, round_trip_ms=away, seen=seen)
    found = payoff(measured)
    assert (found.reason == "") == (found.speedup >= WORTH)
    assert (found.width == 0) == (found.expected == 1.0)
    assert found.expected <= found.ceiling * 1.0000001
    assert sentence(measured).startswith(f"speculation {'does not pay' if found.reason else 'pays'} here: ")
    if not perfect_drafts_pay(RowCosts(dict(row_ms)), MAX_WIDTH, WORTH):
        assert found.width == 0


def test_perfect_drafts_are_judged_beside_other_rows() -> None:
    steep = RowCosts({1: 10.0, 2: 20.0, 4: 40.0, 8: 80.0})
    assert not perfect_drafts_pay(steep, 7, 1.0)
    step = RowCosts({1: 10.0, 4: 40.0, 5: 41.0, 16: 160.0})
    assert not perfect_drafts_pay(step, 3, 1.0)
    assert perfect_drafts_pay(step, 3, 1.0, requests=2, other_rows=2)
    assert not perfect_drafts_pay(step, 0, 1.0)
