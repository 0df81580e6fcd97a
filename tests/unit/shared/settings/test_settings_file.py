"""`draftmesh.toml`: what it may say, which of two sources wins, and that every mistake in it is one line."""

import stat
from pathlib import Path
from typing import Annotated

import pytest
import typer

from shared.errors import StartError
from shared.settings import command_line, settings_file
from shared.settings.options import Level
from tests import command_lines

MINE: list[dict[str, object]] = []


def serve(
    port: Annotated[int, typer.Option("--port", envvar="DRAFTMESH_PORT", min=0, max=65535)] = 1,
    draft_model: Annotated[list[str], typer.Option("--draft-model", envvar="DRAFTMESH_DRAFT_MODEL")] = [],  # noqa: B006
    draft_device: Annotated[str, typer.Option("--draft-device", envvar="DRAFTMESH_DRAFT_DEVICE")] = "auto",
    no_auth: Annotated[bool, typer.Option("--no-auth", envvar="DRAFTMESH_NO_AUTH")] = False,
    api_key: Annotated[list[str], typer.Option("--api-key", envvar="DRAFTMESH_API_KEY")] = [],  # noqa: B006
    log_level: Annotated[Level, typer.Option("--log-level", envvar="DRAFTMESH_LOG_LEVEL")] = Level.INFO,
    rate: Annotated[float, typer.Option("--rate", "-r", envvar="DRAFTMESH_RATE")] = 1.0,
) -> None:
    MINE.append(dict(locals()))


def new(name: Annotated[str, typer.Option("--name")] = "") -> None:
    if name == "wrong":
        raise StartError("--name", name, "another one")
    MINE.append({"name": name})


def program() -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command("serve")(serve)
    keys = typer.Typer()
    keys.command("new")(new)
    keys.command("old")(new)
    app.add_typer(keys, name="keys")
    listing = typer.Typer(invoke_without_command=True)
    listing.callback()(serve)
    listing.command("new")(new)
    app.add_typer(listing, name="list")
    return app


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, and a home without settings."""
    command_lines.forget_settings(monkeypatch, tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / settings_file.NAME
    file.write_text(text)
    file.chmod(mode)
    return file


def run(*arguments: str) -> dict[str, object]:
    """What the command was called with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["draftmesh", *arguments])
        with pytest.raises(SystemExit) as caught:
            command_line.run(program(), "draftmesh", {("gateway",): ["max_requests", "port"]})
    assert caught.value.code == 0
    return MINE.pop()


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["draftmesh", *arguments])
        with pytest.raises(SystemExit) as caught:
            command_line.run(program(), "draftmesh", {("gateway",): ["max_requests", "port"]})
    line = capsys.readouterr().err
    assert (caught.value.code, line.count("\n")) == (2, 1)
    return line


def test_a_value_of_the_file_is_a_default_of_every_command_that_has_the_option(place: Path) -> None:
    write(place, 'port = 7\ndraft-model = ["a", "b"]\nno_auth = true\nrate = 2\nlog_level = "debug"')
    found = run("serve")
    assert found == {
        "port": 7,
        "draft_model": ["a", "b"],
        "draft_device": "auto",
        "no_auth": True,
        "api_key": [],
        "log_level": Level.DEBUG,
        "rate": 2.0,
    }


def test_the_command_line_wins_over_the_environment_and_that_over_the_table_and_that_over_the_top_level(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place, "port = 1001")
    assert run("serve")["port"] == 1001
    write(place, "port = 1001\n[serve]\nport = 1002")
    assert run("serve")["port"] == 1002
    monkeypatch.setenv("DRAFTMESH_PORT", "1003")
    assert run("serve")["port"] == 1003
    assert run("serve", "--port", "1004")["port"] == 1004


def test_a_table_holds_for_its_command_only(place: Path) -> None:
    write(place, '[keys.new]\nname = "one"\n[keys.old]\nname = "other"\n[gateway]\nmax_requests = 5')
    assert run("keys", "new") == {"name": "one"}
    assert run("keys", "old") == {"name": "other"}


def test_a_group_that_runs_by_itself_has_options_too(place: Path) -> None:
    write(place, 'port = 5\n[list]\nport = 6\n[list.new]\nname = "m"')
    assert run("list")["port"] == 6
    assert run("list", "new") == {"name": "m"}


def test_the_file_here_wins_over_the_users_own_and_a_named_one_over_both(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write(tmp_path / "settings" / "draftmesh", "port = 1")
    assert run("serve")["port"] == 1
    write(place, "port = 2")
    assert run("serve")["port"] == 2
    named = write(tmp_path / "elsewhere", "port = 3")
    monkeypatch.setenv(settings_file.VARIABLE, str(named))
    assert run("serve")["port"] == 3
    assert run("serve", "--config", str(own))["port"] == 1
    assert run("serve", "--config", "off", "--port", "9")["port"] == 9
    assert run("serve", "--config=off")["port"] == 1  # the default


def test_a_single_value_and_a_list_of_one_are_the_same(place: Path) -> None:
    write(place, 'draft_model = "a"\ndraft_device = ["cpu"]')
    found = run("serve")
    assert (found["draft_model"], found["draft_device"]) == (["a"], "cpu")


def test_a_list_at_the_top_level_is_for_the_commands_that_take_several(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place, 'draft_device = ["cpu", "cuda:0"]')
    assert run("serve")["draft_device"] == "auto"
    file = write(place, '[serve]\ndraft_device = ["cpu", "cuda:0"]')
    assert refusal(capsys, "serve") == f"error: {file}:2: draft_device: takes one value, not a list\n"


def test_paths_beside_the_file_are_meant_from_there(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    file = write(folder, 'draft_model = ["small.gguf", "small.gguf#sha256=ab", "hf:a/b", "missing.gguf"]')
    (folder / "small.gguf").touch()
    beside = str(folder / "small.gguf")
    found = run("serve", "--config", str(file))["draft_model"]
    assert found == [beside, f"{beside}#sha256=ab", "hf:a/b", "missing.gguf"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n# port\nprot = 7", ":3: prot: no command has this option; did you mean port?"),
        ("zzzz = 7", ":1: zzzz: no command has this option"),
        ("[serve]\nprot = 7", ":2: prot: serve has no such option; did you mean port?"),
        ("name = 'x'", ":1: name: means something else to each command; it belongs under [keys.new]"),
        ("[serve]\nmax_requests = 7", ":2: max_requests: serve has no such option; it belongs under [gateway]"),
        ("port = 1\n\n[sevre]\nport = 7", ":3: [sevre]: no such command; did you mean serve?"),
        ("[sevre]", ":1: [sevre]: no such command; did you mean serve?"),
        ("[keys.nwe]\nname = 'x'", ":1: [keys.nwe]: no such command; did you mean keys.new?"),
        ("config = 'x'", ":1: config: no command has this option"),
        ("port = 99999", ":1: port = 99999: Input should be less than or equal to 65535"),
        ("port = 'x'", ":1: port = x: Input should be a valid integer, unable to parse string as an integer"),
        ("port = true", ":1: port: true and false are for options that take no value"),
        ("api_key = [['dm-1234']]", ":1: api_key: a text or a number, or a list of them"),
        ("draft_device = 2026-01-01", ":1: draft_device: a text or a number, or a list of them"),
        ("port = [1, 2]\n[serve]\nport = [1, 2]", ":3: port: takes one value, not a list"),
        ("log_level = 'loud'", ":1: log_level = loud: 'loud' is not one of 'debug', 'info', 'warning', 'error'."),
        ("no_auth = 'perhaps'", ":1: no_auth = perhaps: Input should be a valid boolean, unable to interpret input"),
        ("draft-model = 'a'\ndraft_model = 'b'", ":2: draft_model: is also at {file}:1"),
        ("draft_model = [\n  # a\n  'a',\n]\nprot = 1", ":5: prot: no command has this option; did you mean port?"),
        ('draft_device = """\nport = 1\n"""\nprot = 1', ":4: prot: no command has this option; did you mean port?"),
        ("serve = {prot = 1}", ":1: prot: serve has no such option; did you mean port?"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(
    text: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(place, text)
    assert refusal(capsys, "serve") == f"error: {file}{message.format(file=file)}\n"


def test_no_home_and_no_folder_to_be_in_are_no_errors(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda _: (_ for _ in ()).throw(KeyError()))
    place.rmdir()
    assert run("serve")["port"] == 1
    monkeypatch.chdir(tmp_path)


def test_what_is_no_toml_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(place, "port = ")
    assert refusal(capsys, "serve").startswith(f"error: --config {file}: not TOML: ")
    file.write_bytes(b"\xff\xfe")
    assert refusal(capsys, "serve") == f"error: --config {file}: not a text file in UTF-8\n"


def test_a_file_that_is_named_must_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "serve", "--config", "nothere").startswith("error: --config nothere: no such file; ")


def test_help_is_shown_whatever_the_file_says(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place, "prot = 1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["draftmesh", "serve", "--help"])
        with pytest.raises(SystemExit) as caught:
            command_line.run(program(), "draftmesh", {})
    assert (caught.value.code, "--config" in capsys.readouterr().out) == (0, True)


def test_an_error_that_is_found_later_names_the_line_too(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(place, "[keys.new]\n\nname = 'wrong'")
    assert refusal(capsys, "keys", "new") == f"error: --name wrong: another one ({file}:3)\n"
    assert refusal(capsys, "keys", "new", "--name", "wrong") == "error: --name wrong: another one\n"


@pytest.mark.parametrize("text", ["api_key = 'dm-1'", "redis = 'redis://:p@h:1/0'", "redis = 'redis://h?password=p'"])
def test_a_secret_that_everybody_here_can_read_is_refused(text: str, place: Path) -> None:
    file = write(place, text, 0o644)
    with pytest.raises(StartError, match="every user here can read; run chmod 600") as caught:
        settings_file.read(file)
    assert "dm-1" not in str(caught.value)
    assert ":p" not in str(caught.value)
    file.chmod(0o640)
    assert settings_file.read(file).tables[()]


def test_a_file_without_secrets_may_be_read_by_everybody(place: Path) -> None:
    file = write(place, "api_key = []\nredis = 'redis://h'", 0o644)
    assert settings_file.read(file).tables[()]["api_key"].value == []


def test_a_file_here_that_others_may_write_is_not_trusted_by_chance(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(place, "port = 5", 0o606)
    assert stat.S_IMODE(file.stat().st_mode) == 0o606
    assert refusal(capsys, "serve").startswith(f"error: --config {file}: other users can write this file; ")
    assert run("serve", "--config", settings_file.NAME)["port"] == 5
