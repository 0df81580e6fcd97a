"""Nothing lost, nothing twice: the whole system under 200 seeded schedules of faults; `make soak` has more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.wire import mending, scripts
from tests.simulation import partners, system

SEEDS = 200
PIECE = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    partners.vocabulary_file(tmp_path)
    return tmp_path


@pytest.mark.parametrize("first", range(0, SEEDS, PIECE))
def test_every_answer_is_right_and_everything_ends_whatever_fails(first: int, folder: Path) -> None:
    fates: list[str] = []
    for seed in range(first, first + PIECE):
        try:
            fates += system.run(seed, folder).fates
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}; python -m tests.simulation.soak --seeds 1 --first {seed} --tell")
    assert fates.count("answered") > 0.6 * len(fates)  # else the faults hide what they should show
    assert fates.count("generation_failed") < 0.03 * len(fates)  # three verifiers may die of the same request


def test_a_seed_gives_the_same_run_in_every_process(folder: Path) -> None:
    code = (
        "import sys, pathlib; from tests.simulation import system;"
        "print([system.run(seed, pathlib.Path(sys.argv[1])).trace for seed in map(int, sys.argv[2:])])"
    )

    def traces(hash_seed: str, *seeds: str) -> list[int]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code, str(folder), *seeds]
        output = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
        return [int(trace) for trace in output.strip("[]\n").split(",")]

    runs = traces("1", "3", "4", "5", "6")
    assert len(set(runs)) == 4
    assert traces("2", "5", "6", "4", "3") == [runs[2], runs[3], runs[1], runs[0]]


@pytest.mark.parametrize(
    ("script", "sound", "broken", "known"),
    [
        ("COMMIT", "if count > 0 and base + count <= committed then return 'duplicate' end", "", 0),
        ("CLAIM", "'owner', ARGV[3], 'lease', now + ARGV[4]", "'owner', ARGV[3], 'lease', 1e15", 170),
        ("MEND", "local ids, places, callers = {}", "do return 0 end local ids, places, callers = {}", 106),
    ],
    ids=["appends blindly", "a lease without end", "mends nothing"],
)
def test_a_broken_script_is_found(
    script: str, sound: str, broken: str, known: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulation that cannot fail would prove nothing. `known` found it; other code may need another seed."""
    module = mending if script == "MEND" else scripts
    source = getattr(module, script).source
    assert sound in source
    source = source.replace(sound, broken).replace("if base ~= committed then return 'gap' end", "base = committed")
    monkeypatch.setattr(module, script, scripts.Script(source))
    assert any(_breaks(seed, folder) for seed in (known, *range(400)))


def _breaks(seed: int, folder: Path) -> bool:
    try:
        system.run(seed, folder)
    except AssertionError:
        return True
    return False
