"""`draftmesh logs`: lines of several processes in order of time, ours made readable and others as they are."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from services.launcher.facts import run_file
from services.launcher.fleet.log_rotation import rotate
from services.launcher.look import logs
from services.launcher.look.log_line import as_json, pretty, read
from services.launcher.look.log_reader import LogReader
from shared.errors import StartError
from shared.settings.options import Level

BEGAN = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()


def ours(second: float, event: str, level: str = "info", **fields: object) -> str:
    moment = datetime.fromtimestamp(BEGAN + second, UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"service": "s", **fields, "event": event, "level": level, "timestamp": moment})


def add(folder: Path, process: str, *lines: str) -> None:
    with (folder / f"{process}.log").open("a") as log:
        log.writelines(f"{line}\n" for line in lines)


def said(lines: object) -> list[str]:
    return [line.fields["event"] if line.fields else line.raw for line in lines]  # type: ignore[attr-defined]


def reader(folder: Path, wanted: str = "", level: Level = Level.DEBUG) -> LogReader:
    return LogReader(folder, wanted, level, BEGAN)


def test_processes_are_merged_by_time(tmp_path: Path) -> None:
    add(tmp_path, "gateway", ours(1, "a"), ours(4, "d"))
    add(tmp_path, "verifier", ours(2, "b"), ours(3, "c"))
    assert said(reader(tmp_path).read(10)) == ["a", "b", "c", "d"]


def test_a_line_without_a_time_stays_behind_the_one_before_it(tmp_path: Path) -> None:
    add(tmp_path, "gateway", ours(1, "a"), "Traceback", "  deep", ours(4, "d"))
    add(tmp_path, "verifier", ours(2, "b"))
    assert said(reader(tmp_path).read(10)) == ["a", "Traceback", "  deep", "b", "d"]


def test_valkeys_own_times_and_levels_are_understood() -> None:
    line = read("valkey", "77:M 29 Nov 2026 22:33:18.123 # Memory overcommit must be enabled", BEGAN)
    assert line.moment == datetime(2026, 11, 29, 22, 33, 18, 123000).timestamp()
    assert line.level == "warning"
    assert read("valkey", "77:signal-handler (1795993403) Received SIGTERM", BEGAN).moment == 1795993403


def test_the_last_lines_are_the_last_of_all_processes(tmp_path: Path) -> None:
    add(tmp_path, "gateway", *(ours(second, f"g{second}") for second in range(5)))
    add(tmp_path, "verifier", ours(3.5, "v"))
    assert said(reader(tmp_path).read(3)) == ["g3", "v", "g4"]
    assert reader(tmp_path).read(0) == []


def test_a_level_leaves_out_what_is_less_important_before_lines_are_counted(tmp_path: Path) -> None:
    add(tmp_path, "gateway", ours(1, "bad", "error"), ours(2, "so-so", "warning"), "error: no port", *["noise"] * 9)
    assert said(reader(tmp_path, level=Level.WARNING).read(2)) == ["so-so", "error: no port"]


@pytest.mark.parametrize(
    "raw", ["{", "{}", "[1]", '{"event": "x", "level": [], "timestamp": {}}', "[" * 5000, "\x1b[2J"]
)
def test_nothing_that_a_process_prints_breaks_it(raw: str) -> None:
    line = read("verifier", raw, BEGAN)
    assert line.moment == BEGAN
    assert "\x1b" not in pretty(line, 8).plain
    assert json.loads(as_json(line))["process"] == "verifier"


def test_a_line_reads_as_time_level_process_event_and_fields() -> None:
    text = pretty(read("verifier", ours(1, "redis_lost", "warning", error="not there", tries=3), BEGAN), 10).plain
    clock = datetime.fromtimestamp(BEGAN + 1).strftime("%H:%M:%S")
    assert text == f'{clock} warning  verifier    redis_lost error="not there" tries=3'


def test_an_exception_stands_below_its_line() -> None:
    text = pretty(read("gateway", ours(1, "failed", "error", exception=["ValueError", "  x.py:3 f"]), BEGAN), 7).plain
    assert text.splitlines()[1:] == ["    ValueError", "      x.py:3 f"]


def test_colours_are_for_terminals_only(tmp_path: Path) -> None:
    line = read("verifier", ours(1, "a", "error"), BEGAN)
    with (tmp_path / "out").open("w") as file:
        logs.show(Console(file=file), [line], 8, json=False)
        logs.show(Console(file=file, force_terminal=True), [line], 8, json=False)
    plain, coloured = (tmp_path / "out").read_text().splitlines()
    assert "\x1b" not in plain
    assert "\x1b" in coloured


def test_what_comes_is_read_once_and_only_in_whole_lines(tmp_path: Path) -> None:
    following = reader(tmp_path)
    assert following.read() == []
    add(tmp_path, "gateway", ours(1, "a"))
    with (tmp_path / "gateway.log").open("a") as log:
        log.write("half")
    assert said(following.read()) == ["a"]
    add(tmp_path, "gateway", " and half")
    add(tmp_path, "drafter-2", "a newcomer")
    assert said(following.read()) == ["half and half", "a newcomer"]
    assert following.read() == []


def test_a_line_that_never_ends_is_not_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "gateway.log").write_bytes(b"x" * 300_000)
    assert sum(len(line.raw) for line in reader(tmp_path).read()) >= 200_000


def test_no_line_is_lost_or_doubled_by_rotations(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    add(tmp_path, "gateway", "0")
    rotate(log, 0)
    add(tmp_path, "gateway", "1")
    rotate(log, 0)
    add(tmp_path, "gateway", "2")
    following = reader(tmp_path)
    assert said(following.read()) == ["0", "1", "2"]
    add(tmp_path, "gateway", "3")
    rotate(log, 0)
    add(tmp_path, "gateway", "4, and longer than all that was there")
    assert said(following.read()) == ["3", "4, and longer than all that was there"]


def test_a_log_that_was_emptied_is_read_from_its_start(tmp_path: Path) -> None:
    following = reader(tmp_path)
    add(tmp_path, "gateway", "a long first line")
    following.read()
    (tmp_path / "gateway.log").write_text("b\n")
    assert said(following.read()) == ["b"]


# ---------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    place = tmp_path / "logs"
    place.mkdir()
    return place


@pytest.fixture
def up(folder: Path) -> Iterator[run_file.RunFile]:
    with run_file.recorded(record(folder)) as file:
        yield file


def record(folder: Path) -> run_file.FleetRun:
    return run_file.FleetRun(pid=1, gateway="http://127.0.0.1:1", redis="redis://x", logs=str(folder), started=BEGAN)


def show(
    name: str = "", *, follow: bool = False, json: bool = False, sleep: Callable[[float], None] | None = None
) -> int:
    more: dict[str, Any] = {"sleep": sleep} if sleep else {}
    return logs.run(name, None, follow=follow, count=50, level=Level.DEBUG, as_json=json, **more)


@pytest.mark.usefixtures("up")
def test_a_name_stands_for_all_that_begin_with_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for process in ("drafter-1", "drafter-2", "lookup-drafter"):
        add(folder, process, f"of {process}")
    assert show("drafter") == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["drafter-1", "drafter-2"]


@pytest.mark.usefixtures("up")
def test_a_name_that_nobody_has_lists_those_that_are_there(folder: Path) -> None:
    add(folder, "gateway", "x")
    add(folder, "verifier", "x")
    with pytest.raises(StartError, match="NAME nobody: no process has this name; there are gateway, verifier"):
        show("nobody")


@pytest.mark.usefixtures("up")
def test_json_is_one_object_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(folder, "gateway", ours(1, "a :smile: [red]", n=1), "[bold]raw[/bold] :smile:")
    show(json=True)
    one, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["process"], one["event"], one["n"]) == ("gateway", "a :smile: [red]", 1)
    assert other == {"process": "gateway", "line": "[bold]raw[/bold] :smile:"}


def test_following_ends_with_the_up_and_shows_its_last_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(folder, "gateway", "before")
    with run_file.recorded(record(folder)) as file:
        naps = []

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            add(folder, "gateway", f"nap {len(naps)}")
            if len(naps) == 3:
                next((folder.parent / "state/draftmesh/up").iterdir()).unlink()

        assert show(follow=True, sleep=sleep) == 0
        file.kept = True
    assert [line.split("gateway  ")[1] for line in capsys.readouterr().out.splitlines()] == [
        *("before", "nap 1", "nap 2", "nap 3")
    ]


def test_after_a_bad_end_the_last_logs_are_shown_and_not_followed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_file.recorded(record(folder)) as file:
        file.kept = True
    add(folder, "verifier", "error: out of memory")
    assert show(follow=True) == 0
    output, errors = capsys.readouterr()
    assert "out of memory" in output
    assert "the last one that ended badly" in errors


def test_without_any_up_the_journal_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show() == 1
    assert "journalctl -u 'draftmesh-*'" in capsys.readouterr().err
