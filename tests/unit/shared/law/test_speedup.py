import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.law.speedup import RowCosts, expected_tokens


def test_expected_tokens_follow_the_closed_form() -> None:
    assert expected_tokens(0.5, 4) == pytest.approx(1.9375)
    assert expected_tokens(0.8, 8) == pytest.approx(4.3289, abs=1e-4)
    assert expected_tokens(1.0, 4) == 5.0
    assert expected_tokens(0.0, 4) == 1.0


@given(st.floats(0, 1), st.integers(0, 30))
def test_one_more_draft_never_gives_fewer_tokens(alpha: float, width: int) -> None:
    assert expected_tokens(alpha, width + 1) >= expected_tokens(alpha, width) >= 1.0


def test_impossible_inputs_are_errors() -> None:
    with pytest.raises(ValueError):
        expected_tokens(1.1, 3)
    with pytest.raises(ValueError):
        RowCosts({})


def test_row_costs_interpolate_and_extrapolate() -> None:
    costs = RowCosts({1: 10.0, 2: 14.0, 4: 16.0, 8: 24.0})
    assert [costs(rows) for rows in (1, 2, 3, 4, 6, 8, 10)] == [10.0, 14.0, 15.0, 16.0, 20.0, 24.0, 28.0]


def test_rows_within_a_time_are_the_most_that_fit() -> None:
    costs = RowCosts({1: 10.0, 2: 14.0, 4: 16.0, 8: 24.0})
    assert [costs.rows_within(ms) for ms in (1.0, 10.0, 15.0, 24.0, 44.0)] == [1, 1, 3, 8, 18]
    assert RowCosts({1: 5.0}).rows_within(50.0) == 10


def test_row_costs_follow_what_is_observed_and_stay_ordered() -> None:
    costs = RowCosts({1: 10.0, 2: 14.0, 4: 16.0})
    for _ in range(200):
        costs.observe(2, 28.0)
    assert costs(2) == pytest.approx(28.0, rel=0.05)
    assert costs(4) >= costs(2)
    assert costs(1) == 10.0
    costs.observe(1, 1e9)  # one outlier moves an entry by a tenth at most
    assert costs(1) == pytest.approx(11.0)
