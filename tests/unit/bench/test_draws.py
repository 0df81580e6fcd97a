"""What `make bench ARGS=--draws` writes."""

from itertools import count

from bench import draws
from bench.draws import GOALS, VOCABULARY


def test_each_law_has_the_time_of_its_fastest_draw() -> None:
    ticks = count()
    found = draws.measure(2, clock=lambda: next(ticks) / 1e6)
    assert found == {
        "vocabulary": VOCABULARY,
        "numpy_exp_microseconds": 1.0,
        "microseconds": dict.fromkeys(GOALS, 1.0),
    }
    assert draws.table(found).row_count == 1 + len(GOALS)
