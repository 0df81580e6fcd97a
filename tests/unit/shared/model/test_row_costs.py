"""What rows cost is measured by one rule: the fastest of a few, and never less for more rows."""

import itertools
from typing import Any

import pytest

from shared.law.speedup import RowCosts
from shared.machine.load import CpuTime
from shared.model.row_costs import NOISY, ROW_COUNTS, rising, time_rows
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


def measure(*arguments: Any, **options: Any) -> dict[int, float]:
    return time_rows(*arguments, **options).costs


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


def test_where_decodes_take_long_each_count_is_measured_once_and_the_first_twice() -> None:
    clock = Clock([1.0])
    found = measure(ToyTarget(took=clock.decode), TEXT, (1, 2, 4), budget_s=0.02, clock=clock)
    assert clock.rows[1:] == [1, 2, 4, 1]
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


@pytest.mark.parametrize(
    ("passes", "noise"),
    [
        ((1.0, 1.0, 1.0, 1.0), 0.0),
        ((9.0, 1.0, 1.1, 2.0), 0.1),  # the first decodes and a few others may take long
        ((3.0, 2.0, 1.0, 1.5), 0.5),
        ((2.0, 2.0, 2.0, 2.0), 0.0),  # an even load shows in the processor's times only
    ],
)
def test_a_busy_machine_shows_in_the_two_fastest_decodes_of_a_count(passes: tuple[float, ...], noise: float) -> None:
    factors = [factor for factor in passes for _ in ROW_COUNTS]
    clock = Clock([1.0, *factors])
    times = time_rows(ToyTarget(took=clock.decode), TEXT, clock=clock)
    assert times.noise == pytest.approx(noise)
    assert times.is_noisy == (noise > NOISY)


@pytest.mark.parametrize(("others", "busy"), [(0.0, False), (0.5, True)])
def test_an_even_load_shows_in_what_others_use_of_the_processor(others: float, busy: bool) -> None:
    clock = Clock([2.0] * 100)

    def cpu() -> CpuTime:
        return CpuTime(busy=clock.now, idle=0.0, own=clock.now * (1 - others))

    times = time_rows(ToyTarget(took=clock.decode), TEXT, clock=clock, cpu=cpu)
    assert times.noise == pytest.approx(0.0)
    assert times.is_noisy == busy


def test_one_disturbed_count_is_enough() -> None:
    clock = Clock([1.0, *([1.0, 1.0, 1.0] * 3), 1.0, 1.0, 0.5])
    times = time_rows(ToyTarget(took=clock.decode), TEXT, (1, 2, 4), clock=clock)
    assert times.noise == pytest.approx(1.0)


def test_progress_is_told_and_a_measurement_can_be_stopped() -> None:
    told: list[float] = []
    target = ToyTarget()
    time_rows(target, TEXT, (1, 2), told=told.append)
    assert told == pytest.approx([0.125 * step for step in range(1, 9)])
    told.clear()
    times = time_rows(target, TEXT, (1, 2), told=told.append, stop=lambda: len(told) == 3, sequence=2)
    assert [len(times.ms[count]) for count in (1, 2)] == [2, 1]
    assert not any(target.cells)
