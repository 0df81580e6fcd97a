"""What rows cost is measured by one rule: the fastest of a few, and never less for more rows."""

import itertools

import pytest

from shared.law.speedup import RowCosts
from shared.model.row_costs import ROW_COUNTS, measure, rising
from tests.toys import ToyTarget

TRUE_MS = RowCosts({1: 10.0, 8: 16.0, 32: 40.0})
TEXT = list(range(2, 62)) * 2


class Clock:
    """Moves with decodes; `noise` multiplies what each of them takes."""

    def __init__(self, noise: list[float]) -> None:
        self._noise = itertools.cycle(noise)
        self.now = 0.0
        self.rows: list[int] = []

    def decode(self, rows: int) -> None:
        self.rows.append(rows)
        self.now += TRUE_MS(rows) * next(self._noise) / 1000

    def __call__(self) -> float:
        return self.now


def test_the_fastest_decode_counts_if_something_disturbs_all_others() -> None:
    passes = [factor for factor in (5.0, 3.0, 1.0, 2.0) for _ in ROW_COUNTS]
    clock = Clock([1.0, *passes])
    target = ToyTarget(took=clock.decode)
    assert measure(target, TEXT, clock=clock) == pytest.approx({count: TRUE_MS(count) for count in ROW_COUNTS})
    assert not any(target.cells)


def test_counts_take_turns() -> None:
    clock = Clock([1.0])
    measure(ToyTarget(took=clock.decode), TEXT, (1, 2, 4), clock=clock)
    assert clock.rows[1:] == [1, 2, 4] * 4


def test_where_decodes_take_long_each_count_is_measured_once() -> None:
    clock = Clock([1.0])
    found = measure(ToyTarget(took=clock.decode), TEXT, (1, 2, 4), budget_s=0.02, clock=clock)
    assert clock.rows[1:] == [1, 2, 4]
    assert list(found) == [1, 2, 4]


def test_more_rows_never_cost_less() -> None:
    assert rising({1: 12.0, 2: 10.0, 4: 15.0, 8: 14.0}) == {1: 10.0, 2: 10.0, 4: 14.0, 8: 14.0}


@pytest.mark.parametrize("window", [0, 8])
def test_a_model_that_cannot_drop_the_last_tokens_reads_its_text_again(window: int) -> None:
    target = ToyTarget(window=window)
    target.can_roll_back = bool(window)
    assert list(measure(target, TEXT, (1, 2, 16))) == [1, 2, 16]
    assert not any(target.cells)


def test_what_is_read_after_a_decode_is_timed_with_it() -> None:
    clock = Clock([1.0])

    def read(rows: int) -> None:
        clock.now += rows / 1000

    found = measure(ToyTarget(took=clock.decode), TEXT, (1, 8), read=read, clock=clock)
    assert found == pytest.approx({1: 11.0, 8: 24.0})
