"""Every trial of the list has a row, and every test that a row names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/trials.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
ROWS = re.findall(r"^\| (\d+) \|(.*)\|$", TEXT, re.MULTILINE)


def functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in functions(ROOT / path)


def test_every_trial_has_a_row_with_a_test() -> None:
    numbers = [int(number) for number, _ in ROWS]
    left_out = {
        int(number) for number in re.findall(r"\d+", TEXT.rpartition("The notes leave out")[2].partition("\n")[0])
    }
    assert numbers == sorted(numbers)
    assert set(numbers) | left_out == set(range(1, 41))
    assert not set(numbers) & left_out
    for number, row in ROWS:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", row), number
