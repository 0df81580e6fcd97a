"""A second machine, over a network, joins by address or by zeroconf, helps, stays over a restart, and leaves."""

import subprocess
from pathlib import Path

import pytest

from bench.firstrun import Measured, measure
from bench.machines import NotPermittedError, machines

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture
def network() -> None:
    """Skips where namespaces cannot be made."""
    try:
        with machines(1.0):
            pass
    except NotPermittedError as error:
        pytest.skip(str(error))


def namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(("apart_ms", "by", "restart"), [(1.0, "zeroconf", False), (20.0, "address", True)])
def test_a_second_machine_joins_helps_and_leaves(apart_ms: float, by: str, restart: bool, shallow_path: Path) -> None:
    before = namespaces()
    measured = measure(apart_ms, by, str(shallow_path), restart, str(shallow_path))
    told = [line for _, line in measured.lines]
    assert answered_ms(measured) >= apart_ms
    assert any(line.startswith("vocabulary matches ") and line.endswith("(49,152 tokens)") for line in told)
    assert any(line.startswith(("should raise ", "will not pay for ")) for line in told)
    assert any(": adds " in line for line in told)
    assert told[-1] == "left; nothing is lost"
    assert any(line.startswith("found draftmesh on ") for line in told) == (by == "zeroconf")
    assert ("the fleet's Redis answers again" in told) == restart
    assert measured.first_token_s > 0
    assert (measured.rejoined_s > 0) == restart
    assert namespaces() <= before


def answered_ms(measured: Measured) -> float:
    beginning = "the fleet's Redis answers in "
    line = next(line for _, line in measured.lines if line.startswith(beginning))
    return float(line.removeprefix(beginning).split()[0])
