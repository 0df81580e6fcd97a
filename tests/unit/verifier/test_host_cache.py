"""`--cache-ram`: a number of MiB, or a share of what is free."""

import sys

import pytest

from services.verifier.host_cache import budget

GIB = 1 << 30


@pytest.mark.parametrize(
    ("wanted", "free", "expected"),
    [
        ("0", 64 * GIB, 0),
        ("100", 0, 100 << 20),
        ("auto", 8 * GIB, 2 * GIB),
        ("auto", 64 * GIB, 8 * GIB),
        ("auto", sys.maxsize, 8 * GIB),
        ("auto", -1, 0),
    ],
)
def test_the_budget(wanted: str, free: int, expected: int) -> None:
    assert budget(wanted, free) == expected
