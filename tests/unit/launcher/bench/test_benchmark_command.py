"""The command `draftmesh bench` as a whole: what it prints and writes, Ctrl-C, failures and wrong command lines."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.launcher.facts.run_file import FleetRun, recorded
from shared.settings import command_line, settings_file
from tests.benchmarks import Start, bench, fakes
from tests.dialects import Fake, failing, llama_server, ours


@pytest.fixture
def background() -> Iterator[Start]:
    with fakes() as start:
        yield start


@pytest.mark.parametrize("keys", ["environment", "file"])
def test_the_command_prints_and_writes_what_it_measured(
    keys: str,
    background: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    mine, peer = Fake(ours), Fake(llama_server)
    if keys == "environment":
        monkeypatch.setenv("DRAFTMESH_API_KEY", "first-key second-key")
    else:
        file = tmp_path / settings_file.NAME
        file.write_text('api_key = ["first-key", "second-key"]')
        file.chmod(0o600)
        monkeypatch.setenv(settings_file.VARIABLE, str(file))
    figures = tmp_path / "b.json"
    status = bench(
        monkeypatch,
        *(f"mine={background(mine)}", "--compare", f"peer={background(peer)}", "--seed", "5"),
        "--json",
        str(figures),
    )
    output, errors = capsys.readouterr()
    assert status == 0
    assert "mine over its peers" in output
    assert "2 requests to each server" in errors
    assert json.loads(figures.read_text())["settings"]["seed"] == 5
    assert set(mine.keys) == {"Bearer first-key"}
    assert set(peer.keys) == {""}
    assert "-key" not in output + errors + figures.read_text()


def test_ctrl_c_reports_the_answers_so_far(
    background: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupting(body: dict[str, Any]) -> list[str] | None:
        if len(fake.asked) < 3:  # the warm-up and the first repetition
            return ours(body)
        os.kill(os.getpid(), signal.SIGINT)
        return None

    fake = Fake(interrupting)
    assert bench(monkeypatch, background(fake)) == command_line.INTERRUPTED
    output, _ = capsys.readouterr()
    assert "chat T=0" in output
    assert "interrupted: these are the answers so far" in output


def test_a_run_of_failures_only_has_exit_status_1(
    background: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Fake(lambda body: ours(body) if len(fake.asked) == 1 else failing(body))
    assert bench(monkeypatch, background(fake)) == 1
    output, _ = capsys.readouterr()
    assert "2 of 2 requests failed: HTTP 500" in output


def test_a_running_up_is_measured_by_default(
    background: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = Fake(ours)
    up = FleetRun(pid=1, gateway=background(fake).rstrip("/"), redis="redis://x", logs=str(tmp_path), started=1.0)
    with recorded(up):
        assert bench(monkeypatch) == 0
    assert len(fake.asked) == 3


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("127.0.0.1:1",), "error: server 127.0.0.1:1: cannot be reached (Connection refused); "),
        (("--concurrency", "17"), "error: --concurrency 17: "),
        (("--workload", "poetry"), "error: --workload poetry: "),
        (("--json", "nowhere/b.json"), "error: --json nowhere/b.json: a file that can be written, in a folder"),
        (("--json", "."), "error: --json .: a file that can be written, in a folder"),
        (("--report", "page.pdf"), "error: --report page.pdf: a file whose name ends in .html"),
        (("--report", "nowhere/p.html"), "error: --report nowhere/p.html: a file that can be written, in a folder"),
        (("--report", "p.html", "--json", "p.json"), "error: --json p.json: is where --report puts its card"),
        (("--up", "1"), "error: --up 1: no `up` of this user has its gateway there"),
        (("nonsense://x",), "error: URL nonsense://x: an address such as "),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: tuple[str, ...],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench(monkeypatch, *arguments) == command_line.BAD_OPTION
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert errors.startswith(line)
