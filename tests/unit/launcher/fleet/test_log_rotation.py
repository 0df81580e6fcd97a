"""Logs that another process appends to stay within bounds, and nothing of them is lost but by age."""

import subprocess
import sys
from pathlib import Path

from services.launcher.fleet.log_rotation import KEPT, older, rotate


def test_a_short_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "verifier.log"
    log.write_text("x" * 10)
    assert not rotate(log, 10)
    assert log.read_text() == "x" * 10


def test_a_writer_that_knows_nothing_of_it_goes_on_in_the_emptied_file(tmp_path: Path) -> None:
    log = tmp_path / "verifier.log"
    code = "import sys\nfor line in sys.stdin: print(line.strip(), flush=True)"
    with log.open("ab") as output:
        writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=output, text=True)
    try:
        assert writer.stdin is not None
        for number in range(4):
            print(f"line {number}", file=writer.stdin, flush=True)
            while not log.read_text().endswith(f"line {number}\n"):
                assert writer.poll() is None
            if number < 3:
                assert rotate(log, 1)
    finally:
        writer.communicate(timeout=10)
    assert log.read_text() == "line 3\n"
    assert [place.read_text() for place in older(log)] == ["line 2\n", "line 1\n"]
    assert len(list(tmp_path.iterdir())) == 1 + KEPT


def test_without_room_for_a_copy_the_log_is_emptied_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "verifier.log"
    log.write_text("x" * 10)
    (tmp_path / "verifier.log.new").mkdir()  # so that it cannot be written
    assert rotate(log, 1)
    assert log.read_text() == ""
