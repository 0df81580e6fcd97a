"""The speed-ups that docs/expect.md reckons with are what the code makes of the same costs of rows."""

import re

import pytest

from shared.law.payoff import Measurement, payoff
from tests.docs.blocks import ROOT

TEXT = (ROOT / "docs/expect.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.partition("<!-- table:")[2].partition("\n\nThe CPU rows")[0].splitlines()
    if line.startswith("|")
]
COUNTS = [int(name[2:-1]) for name in ROWS[0] if name.startswith("v(")]
ACCEPTANCES = [float(name.removeprefix("a = ")) for name in ROWS[0] if name.startswith("a = ")]


def written(acceptance: float, costs: dict[int, float]) -> str:
    best = payoff(Measurement(row_ms=tuple(costs.items()), alpha=acceptance))
    return f"{best.speedup:.1f} × ({best.width})" if best.width else "plain"


@pytest.mark.parametrize("row", ROWS[2:], ids=lambda row: row[0])
def test_a_row_of_the_table_is_what_the_code_makes_of_its_costs(row: list[str]) -> None:
    emulated = re.match(r"emulated: ([\d.]+) ms \+ ([\d.]+) ms a row", row[0])
    measured = dict(zip(COUNTS, map(float, row[1:5]), strict=True))
    costs = {1: 1.0, **measured}
    if emulated:
        first, more = map(float, emulated.groups())
        costs = {rows: first + more * rows for rows in (1, 2, 4, 8, 16)}
        assert measured == {rows: round(ms / costs[1], 2) for rows, ms in costs.items() if rows > 1}
    assert row[5:] == [written(acceptance, costs) for acceptance in ACCEPTANCES]


def test_the_table_has_rows() -> None:
    assert len(ROWS) > 4
    assert len(COUNTS) == len(ACCEPTANCES) == 4


def test_what_a_slow_drafter_leaves_is_as_written() -> None:
    curve = tuple((rows, 26.0 + rows) for rows in (1, 2, 4, 8, 16))
    found = [payoff(Measurement(row_ms=curve, alpha=0.9, draft_ms=ms)) for ms in (0.0, 6.0, 12.0)]
    assert [round(one.speedup, 1) for one in found] == [5.2, 2.8, 1.8]
    assert "expect 2.8 × instead of 5.2; with a drafter of 12 ms expect 1.8 ×" in " ".join(TEXT.split())
