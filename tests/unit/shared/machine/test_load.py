"""What other programs use of the processor, from Linux' own counts."""

from pathlib import Path

import pytest

from shared.machine.load import CpuTime, is_contended, parse, read

STAT = """cpu  60 0 0 300 0 0 0 0 0 0
cpu0 10 1 2 100 5 3 4 0 9 0
cpu1 20 0 0 100 0 0 0 5 0 0
cpu2 30 0 0 100 0 0 0 0 0 0
intr 1 2 3
"""
ZERO = CpuTime(0.0, 0.0, 0.0)


def test_only_our_cores_count() -> None:
    assert parse(STAT, {0}, 10) == (2.0, 10.5)
    assert parse(STAT, {0, 1}, 10) == (4.5, 20.5)
    with pytest.raises(ValueError, match="no times"):
        parse(STAT, {7}, 10)


def test_where_nothing_is_told_nothing_is_known(tmp_path: Path) -> None:
    assert read(tmp_path / "stat") is None
    assert not is_contended(None, ZERO)
    assert not is_contended(ZERO, None)


@pytest.mark.parametrize(
    ("busy", "idle", "own", "contended"),
    [
        (10.0, 0.0, 10.0, False),  # we alone
        (10.0, 0.0, 5.0, True),
        (10.0, 0.0, 9.0, False),  # others use little
        (6.0, 4.0, 3.0, False),  # others use what is free
        (0.0, 0.0, 0.0, False),
    ],
)
def test_others_disturb_where_the_cores_are_short(busy: float, idle: float, own: float, contended: bool) -> None:
    assert is_contended(ZERO, CpuTime(busy, idle, own)) == contended
