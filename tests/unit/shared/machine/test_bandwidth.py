"""The measurement of the memory's read bandwidth, by a clock that is told how long each pass takes."""

import itertools

import pytest

from shared.machine import bandwidth, resources


@pytest.mark.parametrize("threads", [1, 3])
def test_the_best_pass_counts(threads: int) -> None:
    passes = [4.0, 2.0, 8.0, 2.5, 4.0]
    times = iter(itertools.chain.from_iterable((10.0 * index, 10.0 * index + one) for index, one in enumerate(passes)))
    assert bandwidth.read_bandwidth(threads, 4096, lambda: next(times)) == 4096 / 2.0


def test_where_memory_is_short_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "available_memory", lambda: 4096)
    assert bandwidth.read_bandwidth(1, 4096) == 0.0
