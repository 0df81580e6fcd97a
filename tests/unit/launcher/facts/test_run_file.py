"""How commands find the fleet of a running `up`."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from services.launcher.facts.run_file import FleetRun, chosen, last_dead, living, recorded
from shared.errors import StartError
from shared.folders import state_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def run(pid: int = 10, port: int = 7071, started: float = 1.0, logs: str = "/nowhere") -> FleetRun:
    redis = "redis://:secret@127.0.0.1:1/0"
    return FleetRun(pid=pid, gateway=f"http://127.0.0.1:{port}", redis=redis, logs=logs, started=started)


def die_badly(one: FleetRun) -> None:
    """As `up` does when a child could not be kept running."""
    with recorded(one) as file:
        file.kept = True


def test_an_up_is_found_while_it_lives_and_leaves_nothing() -> None:
    with recorded(run()):
        assert living() == [run()]
        assert chosen(None) == run()
    assert living() == []
    assert chosen(None) is None
    assert list((state_folder() / "up").iterdir()) == []


def test_only_its_user_can_read_the_password() -> None:
    with recorded(run()):
        (file,) = (state_folder() / "up").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_of_several_the_gateways_port_says_which() -> None:
    with recorded(run(10, 7071, 1.0)), recorded(run(11, 8000, 2.0)):
        assert chosen(8000) == run(11, 8000, 2.0)
        with pytest.raises(StartError, match=r"2 fleets run here.*--up 7071 \(pid 10\), --up 8000 \(pid 11\)"):
            chosen(None)
        with pytest.raises(StartError, match=r"--up 9: no `up`.*running: 7071, 8000"):
            chosen(9)


def test_an_up_that_was_killed_does_not_count_as_living() -> None:
    code = (
        f"import os; from services.launcher.facts.run_file import *\nwith recorded({run()!r}): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == -9
    assert living() == []
    assert len(list((state_folder() / "up").iterdir())) == 1


def test_a_number_that_another_process_has_now_is_no_living_up() -> None:
    die_badly(run(os.getpid()))
    assert living() == []


def test_the_latest_bad_end_whose_logs_are_left_is_remembered(tmp_path: Path) -> None:
    die_badly(run(10, started=1.0, logs=str(tmp_path)))
    assert last_dead() == run(10, started=1.0, logs=str(tmp_path))
    die_badly(run(11, started=2.0, logs="/nowhere"))
    assert last_dead() == run(10, started=1.0, logs=str(tmp_path))


def test_files_of_the_dead_do_not_pile_up() -> None:
    for number in range(5):
        die_badly(run(10 + number, started=float(number)))
    assert len(list((state_folder() / "up").iterdir())) == 2  # the latest before the last start, and the last


def test_rubbish_in_the_folder_is_passed_over() -> None:
    with recorded(run()):
        (state_folder() / "up" / "x.run").write_text("{")
        assert living() == [run()]


def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(OSError), recorded(run()):
        pass


def test_state_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local/state/draftmesh"
    assert living() == []
