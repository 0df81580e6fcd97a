"""`draftmesh config`: which value an option has, where it comes from, and whether every command allows it."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.settings import settings_file
from tests.command_lines import forget_settings, launch


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is read, in a working directory of its own."""
    forget_settings(monkeypatch, tmp_path)
    return tmp_path / settings_file.NAME


def settings(capfd: pytest.CaptureFixture[str], command: str, *arguments: str) -> dict[str, tuple[Any, str]]:
    code, output, errors = launch(capfd, "config", "show", command, "--json", *arguments)
    assert (code, errors) == (0, "")
    return {row["key"]: (row["value"], row["source"]) for row in json.loads(output)["commands"][command]}


@pytest.mark.parametrize("command", ["up", "verifier"])
def test_each_option_says_where_its_value_comes_from(
    command: str, file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text("parallel = 3\nctx = 77\nthreads = 2")
    monkeypatch.setenv("DRAFTMESH_CTX", "88")
    monkeypatch.setenv("DRAFTMESH_THREADS", "5")
    found = settings(capfd, command, "--threads", "4")
    assert found["parallel"] == (3, f"{file}:1")
    assert found["ctx"] == (88, "environment DRAFTMESH_CTX")
    assert found["threads"] == (4, "command line")
    assert found["exactness"] == ("auto", "default")
    assert "config" not in found


def test_secrets_stay_hidden(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text('api_key = ["dm-one", "dm-two"]\nredis = "redis://user:secret@host:1/0"')
    file.chmod(0o600)
    found = settings(capfd, "gateway")
    assert found["api_key"] == (["***", "***"], f"{file}:1")
    assert found["redis"] == ("redis://***@host:1/0", f"{file}:2")


def test_without_a_command_what_is_set_is_shown_once(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text("lease = 7\nmax_requests = 9\n[gateway]\nport = 8000")
    code, output, _ = launch(capfd, "config", "show")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if line.startswith("│")]
    assert code == 0
    assert output.startswith(f"file: {file}\n")
    assert sorted(rows) == [
        ["lease", "7.0", "draftmesh.toml:1", "verifier"],
        ["max_requests", "9", "draftmesh.toml:2", "gateway"],
        ["port", "8000", "draftmesh.toml:4", "gateway"],
    ]


def test_a_command_that_is_not_there_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, errors = launch(capfd, "config", "show", "upp")
    assert (code, errors.startswith("error: COMMAND upp: one of ")) == (2, True)


def test_a_file_is_right_if_every_command_says_so(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text('parallel = 3\ndraft_model = ["a", "b"]\n[verifier]\nlease = 7\n[keys.new]\nname = "alice"')
    assert launch(capfd, "config", "check") == (0, f"{file}\nevery key and value is allowed\n", "")


def test_mistakes_of_services_are_found_and_the_environment_hides_none(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text("port = 99999\n[verifier]\nlease = 0")
    monkeypatch.setenv("DRAFTMESH_PORT", "1")
    code, _, errors = launch(capfd, "config", "check")
    assert code == 2
    assert sorted(errors.splitlines()) == [
        f"error: {file}:1: port = 99999: Input should be less than or equal to 65535",
        f"error: {file}:3: lease = 0: Input should be greater than or equal to 0.5",
    ]


def test_the_path_is_told(file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, output, errors = launch(capfd, "config", "path")
    assert (code, output) == (1, "")
    assert str(tmp_path / "settings/draftmesh/draftmesh.toml") in errors
    file.touch()
    assert launch(capfd, "config", "path") == (0, f"{file}\n", "")
    assert launch(capfd, "config", "path", "--config", "off")[0] == 1
