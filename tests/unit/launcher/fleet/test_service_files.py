"""Units and agents for one user: valid, saying exactly the command that was meant, and started by nobody unasked."""

import os
import plistlib
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from services.launcher.fleet import service_files
from shared.errors import StartError
from shared.settings import settings_file
from tests.command_lines import forget_settings, launch

AWKWARD = ["/opt/a b/draftmesh", "join", "redis://:p%40$x@h:1/0", "--draft-model", 'a "b" \\ 5%', "--config", ""]


def exec_start(unit: str) -> str:
    return next(line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart="))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has no settings, on a Linux whose systemctl notes what it is asked and does nothing."""
    forget_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("systemctl", "launchctl"):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/asked\n')
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def asked(home: Path) -> list[str]:
    file = home / "asked"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd to ask")
@pytest.mark.parametrize("arguments", [["up"], AWKWARD[1:]], ids=["plain", "awkward"])
def test_systemd_finds_no_fault(arguments: list[str], tmp_path: Path) -> None:
    command = tmp_path / "a b" / "draftmesh"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    file = service_files.systemd("draftmesh", "a fleet", [str(command), *arguments], tmp_path)
    file.path.parent.mkdir(parents=True)
    file.path.write_text(file.text)
    verify = ["systemd-analyze", "verify", "--user", "--man=no", str(file.path)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    # Of the rest it warns that other units of this machine are odd.
    assert not [line for line in done.stderr.splitlines() if "draftmesh" in line]


def test_a_unit_says_the_command_word_by_word() -> None:
    line = exec_start(service_files.systemd("draftmesh", "a fleet", AWKWARD, Path("/c")).text)
    assert line == (
        '"/opt/a b/draftmesh" join "redis://:p%%40$$x@h:1/0" --draft-model "a \\"b\\" \\\\ 5%%" --config ""'
    )


def test_a_word_of_two_lines_is_refused() -> None:
    with pytest.raises(StartError, match="on one line"):
        service_files.systemd("draftmesh", "a fleet", ["draftmesh", "up\nExecStop=/bin/false"], Path("/c"))


def test_an_agent_says_the_command_word_by_word() -> None:
    file = service_files.launchd("draftmesh", AWKWARD, Path("/Users/me"), 501)
    content = plistlib.loads(file.text.encode())
    assert content["ProgramArguments"] == AWKWARD
    assert content["KeepAlive"] == {"SuccessfulExit": False}
    assert file.path == Path("/Users/me/Library/LaunchAgents/draftmesh.plist")
    assert file.stop == (("launchctl", "bootout", "gui/501/draftmesh"),)


def test_print_writes_and_starts_nothing(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, output, errors = launch(capfd, "service", "install", "--print")
    assert (code, output.splitlines()[1]) == (0, "[Unit]")
    assert f"it would be {home}/settings/systemd/user/draftmesh.service" in errors
    assert "systemctl --user daemon-reload && systemctl --user enable --now draftmesh.service" in errors
    assert not (home / "settings").exists()
    assert asked(home) == []


def test_the_file_that_is_read_here_is_the_services(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / settings_file.NAME).write_text("port = 7099")
    assert launch(capfd, "service", "install")[0] == 0
    unit = home / "settings/systemd/user/draftmesh.service"
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    assert exec_start(unit.read_text()).endswith(f"draftmesh up --config {home / settings_file.NAME}")
    assert asked(home) == [], "nothing starts unasked"


def test_the_system_waits_until_the_gateway_has_drained(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, output, _ = launch(capfd, "service", "install", "--print", "up", "--drain", "600")
    assert "TimeoutStopSec=640" in output.splitlines()
    _, output, _ = launch(capfd, "service", "install", "--print")
    assert "TimeoutStopSec=60" in output.splitlines()
    agent = service_files.launchd("draftmesh", ["draftmesh", "up"], Path("/Users/me"), 501, drain_s=600)
    assert plistlib.loads(agent.text.encode())["ExitTimeOut"] == 640


def test_options_that_the_command_would_refuse_are_refused_now(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, errors = launch(capfd, "service", "install", "up", "--parallel", "99")
    assert (code, errors.startswith("error: --parallel 99: ")) == (2, True)
    code, _, errors = launch(capfd, "service", "install", "upp")
    assert (code, errors) == (2, "error: COMMAND upp: one of up, join\n")
    assert not (home / "settings").exists()


def test_now_starts_it_and_uninstall_stops_it_before_it_removes_it(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch(capfd, "service", "install", "join", "redis://h:1/0", "--draft-device", "cpu", "--now")[0] == 0
    unit = home / "settings/systemd/user/draftmesh-join.service"
    assert exec_start(unit.read_text()).endswith("draftmesh join redis://h:1/0 --draft-device cpu")
    assert asked(home) == ["systemctl --user daemon-reload", "systemctl --user enable --now draftmesh-join.service"]
    assert launch(capfd, "service", "uninstall", "join")[0] == 0
    assert not unit.exists()
    assert asked(home)[2:] == [
        "systemctl --user disable --now draftmesh-join.service",
        "systemctl --user daemon-reload",
    ]
    code, _, errors = launch(capfd, "service", "uninstall", "join")
    assert (code, errors) == (1, f"nothing to remove: there is no {unit}\n")


def test_a_service_that_does_not_start_is_an_error(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / "bin/systemctl").write_text("#!/bin/sh\necho no bus here >&2\nexit 1\n")
    code, _, errors = launch(capfd, "service", "install", "--now")
    assert code == 1
    assert errors.splitlines()[-1] == "systemctl --user daemon-reload: no bus here"


def test_a_file_that_says_something_else_stays(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert launch(capfd, "service", "install")[0] == launch(capfd, "service", "install")[0] == 0
    code, _, errors = launch(capfd, "service", "install", "up", "--port", "9")
    assert (code, "says something else; --force replaces it" in errors) == (2, True)
    assert launch(capfd, "service", "install", "up", "--port", "9", "--force")[0] == 0


def test_the_shells_variables_are_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAFTMESH_PORT", "7099")
    assert "set in this shell and not in the service: DRAFTMESH_PORT" in launch(capfd, "service", "install")[2]


def test_macos_gets_an_agent(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert launch(capfd, "service", "install", "--now")[0] == 0
    agent = home / "Library/LaunchAgents/draftmesh.plist"
    assert plistlib.loads(agent.read_bytes())["ProgramArguments"][-1] == "up"
    assert asked(home) == [f"launchctl bootstrap gui/{os.getuid()} {agent}"]


def test_elsewhere_there_is_no_service(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert launch(capfd, "service", "install")[2] == "error: service win32: is built for systemd and launchd\n"


def test_no_unit_holds_a_password(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, errors = launch(capfd, "service", "install", "--print", "join", "redis://drafter-x:secret@h:1/0")
    assert (code, out) == (2, "")
    assert "a unit would show its password; use --token-file" in errors
    assert "secret" not in errors
    code, out, _ = launch(capfd, "service", "install", "--print", "join", "redis://h:1/0", "--token-file", "/t")
    assert code == 0
    assert "--token-file /t" in out or "<string>/t</string>" in out
