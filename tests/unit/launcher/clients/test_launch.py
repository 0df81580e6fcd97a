"""`draftmesh launch`: clients are programs on PATH that write down how they were started."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from services.launcher.clients.catalogue import CLIENTS, Serving
from services.launcher.clients.launch import notes
from services.launcher.clients.serving import _models, address
from shared.errors import StartError
from tests.command_lines import launch_in
from tests.patience import PROCESS_S

KEY = "sk-ours"
MODEL = 'Smol "8B" GGUF'  # names come from files, and files are named by people
OLD = {"ANTHROPIC_AUTH_TOKEN": "sk-theirs", "ANTHROPIC_API_KEY": "sk-theirs", "OPENAI_API_KEY": "sk-theirs"}
SHOW = """#!{python}
import json, os, sys
files = [word for word in sys.argv[1:] if os.path.isfile(word)]
found = {{"argv": sys.argv[1:], "env": dict(os.environ), "files": {{name: open(name).read() for name in files}}}}
json.dump(found, open(os.environ["SEEN"], "w"))
sys.exit(7)
"""


class Gateway(BaseHTTPRequestHandler):
    """Lists two models to those who know the key."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == f"Bearer {KEY}" and self.path == "/v1/models"
        rows = [{"id": MODEL, "max_model_len": 65_536}, {"id": "second", "max_model_len": 1000}]
        body = json.dumps({"data": rows}).encode() if known else b"{}"
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine on which every client is installed."""
    folder = tmp_path_factory.mktemp("home")
    for client in CLIENTS.values():
        program = folder / "bin" / client.program
        program.parent.mkdir(exist_ok=True)
        program.write_text(SHOW.format(python=sys.executable))
        program.chmod(0o755)
    return folder


def variables(home: Path, **more: str) -> dict[str, str]:
    ours = {"HOME": str(home), "PATH": f"{home}/bin:/usr/bin:/bin", "SEEN": str(home / "seen.json")}
    ours |= {"DRAFTMESH_API_KEY": KEY, "DRAFTMESH_CACHE": str(home / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    return {**OLD, **ours, **more}


def launch(home: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "services.launcher", "launch", *arguments]
    return subprocess.run(
        command, env=variables(home, **more), capture_output=True, text=True, timeout=PROCESS_S, check=False
    )


def said(home: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """The same where no client is started, so that no other process is needed."""
    return launch_in(variables(home, **more), "launch", *arguments)


class Starts:
    """How each client was started with the same arguments, by `launch` and by what it prints; each once."""

    arguments = ("run", "it's", "$HOME")

    def __init__(self, home: Path, url: str) -> None:
        self._home = home
        self._url = url
        self.launched = cache(self._launched)
        self.shown = cache(self._shown)

    def _launched(self, client: str) -> dict[str, Any]:
        done = launch(self._home, client, "--url", self._url, "--", *self.arguments)
        assert done.returncode == 7, done.stderr  # the client's own status
        return self._seen()

    def _shown(self, client: str) -> str:
        done = said(self._home, client, "--url", self._url, "--print", "--", *self.arguments)
        assert (done.returncode, self._file.exists()) == (0, False)
        return done.stdout + done.stderr

    def printed(self, client: str) -> dict[str, Any]:
        lines = self.shown(client).splitlines(keepends=True)
        script = "".join(lines[:-1])  # without the note
        done = subprocess.run(["sh", "-c", script], env=variables(self._home), capture_output=True, check=False)
        assert done.returncode == 7, done.stderr
        return self._seen()

    @property
    def _file(self) -> Path:
        return self._home / "seen.json"

    def _seen(self) -> dict[str, Any]:
        seen = dict(json.loads(self._file.read_text()))
        self._file.unlink()
        return seen


@pytest.fixture(scope="module")
def starts(home: Path, url: str) -> Starts:
    return Starts(home, url)


def test_claude_is_told_by_settings_that_beat_the_users_own(url: str, starts: Starts) -> None:
    seen = starts.launched("claude")
    option, settings, *own = seen["argv"]
    assert (option, *own) == ("--settings", *starts.arguments)
    told = json.loads(settings)
    assert told["env"]["ANTHROPIC_BASE_URL"] == url
    assert told["env"]["ANTHROPIC_MODEL"] == told["env"]["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == MODEL
    assert told["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "65536"
    assert told["env"]["ANTHROPIC_API_KEY"] == told["env"]["ANTHROPIC_AUTH_TOKEN"] == ""
    key = subprocess.run(told["apiKeyHelper"].split(), env=seen["env"], capture_output=True, text=True, check=True)
    assert key.stdout.strip() == KEY


def test_codex_is_told_by_overrides_in_toml(url: str, starts: Starts) -> None:
    seen = starts.launched("codex")
    options, own = seen["argv"][:-3], seen["argv"][-3:]
    assert (set(options[::2]), tuple(own)) == ({"-c"}, starts.arguments)
    told = tomllib.loads("\n".join(options[1::2]))
    provider = told["model_providers"][told["model_provider"]]
    assert (told["model"], told["model_context_window"]) == (MODEL, 65_536)
    assert (provider["base_url"], provider["wire_api"]) == (f"{url}/v1", "responses")
    assert seen["env"][provider["env_key"]] == KEY


def test_opencode_is_told_by_its_environment(url: str, starts: Starts) -> None:
    seen = starts.launched("opencode")
    assert tuple(seen["argv"]) == starts.arguments
    told = json.loads(seen["env"]["OPENCODE_CONFIG_CONTENT"])
    provider, _, model = told["model"].partition("/")
    options = told["provider"][provider]["options"]
    assert (options["baseURL"], model, told["small_model"]) == (f"{url}/v1", MODEL, told["model"])
    assert told["provider"][provider]["models"][model]["limit"] == {"context": 65_536, "output": 16_384}
    assert seen["env"][options["apiKey"].removeprefix("{env:").removesuffix("}")] == KEY


def test_continue_is_told_by_a_file_in_our_cache(home: Path, url: str, starts: Starts) -> None:
    seen = starts.launched("continue")
    option, path, *own = seen["argv"]
    assert (option, *own) == ("--config", *starts.arguments)
    assert Path(path).is_relative_to(home / "cache")
    [model] = yaml.safe_load(seen["files"][path])["models"]
    assert (model["model"], model["apiBase"]) == (MODEL, f"{url}/v1")
    assert model["defaultCompletionOptions"] == {"contextLength": 65_536, "maxTokens": 16_384}
    assert model["apiKey"] == "${{ secrets.DRAFTMESH_API_KEY }}"
    assert seen["env"]["DRAFTMESH_API_KEY"] == KEY


def test_aider_is_told_by_options_and_a_file_in_our_cache(home: Path, url: str, starts: Starts) -> None:
    seen = starts.launched("aider")
    options = dict(zip(seen["argv"], seen["argv"][1:], strict=False))
    assert tuple(seen["argv"][-3:]) == starts.arguments
    assert (options["--model"], options["--openai-api-base"]) == (f"openai/{MODEL}", f"{url}/v1")
    assert seen["env"]["OPENAI_API_KEY"] == KEY
    path = options["--model-metadata-file"]
    assert Path(path).is_relative_to(home / "cache")
    limits = json.loads(seen["files"][path])[options["--model"]]
    assert (limits["max_input_tokens"], limits["max_output_tokens"]) == (65_536, 16_384)


def test_open_webui_is_told_by_its_environment(url: str, starts: Starts) -> None:
    seen = starts.launched("open-webui")
    assert seen["argv"] == ["serve", "--host", "127.0.0.1", *starts.arguments]
    assert seen["env"]["OPENAI_API_BASE_URLS"] == f"{url}/v1"
    assert seen["env"]["OPENAI_API_KEYS"] == KEY
    assert seen["env"]["DEFAULT_MODELS"] == MODEL


@pytest.mark.parametrize("client", CLIENTS)
def test_what_print_shows_does_the_same_as_launch(client: str, starts: Starts) -> None:
    launched, printed = starts.launched(client), starts.printed(client)
    assert printed["argv"] == launched["argv"]
    assert printed["files"] == launched["files"]
    assert {name: printed["env"].get(name) for name in launched["env"]} == launched["env"]


@pytest.mark.parametrize("client", CLIENTS)
def test_nobody_is_shown_the_key_and_no_file_holds_it(client: str, starts: Starts) -> None:
    assert KEY not in starts.shown(client)
    seen = starts.launched(client)
    assert KEY not in str([seen["argv"], seen["files"]])


def test_the_users_home_stays_theirs_and_nothing_is_written_there(home: Path, starts: Starts) -> None:
    for client in CLIENTS:
        assert starts.launched(client)["env"]["HOME"] == str(home)
    assert {path.name for path in home.iterdir()} == {"bin", "cache"}


def test_a_model_can_be_chosen_and_a_small_context_is_warned_of(home: Path, url: str) -> None:
    done = said(home, "claude", "--url", f"{url}/v1/", "--model", "second", "--print")
    assert done.returncode == 0
    assert "claude uses second with 1000 tokens of context" in done.stderr
    assert "warning: that is too small" in done.stderr


def test_a_context_that_suffices_is_not_warned_of() -> None:
    serving = Serving(url="http://h", model="m", n_ctx=65_536)
    for name, client in CLIENTS.items():
        assert len(notes(name, client, serving)) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["emacs"], "error: client emacs: one of claude, codex, opencode, continue, aider, open-webui"),
        (["claude", "--model", "big"], f"error: --model big: not served there; served are {MODEL}, second"),
        (["claude", "--api-key", "wrong"], "error: --api-key (not shown): {url} refuses this key (HTTP 401)"),
        (["claude", "--url", "ftp://h"], "error: --url ftp://h: an address such as http://127.0.0.1:7071"),
        (
            ["claude", "--url", "http://127.0.0.1:1"],
            "error: --url http://127.0.0.1:1: cannot be reached (Connection refused)",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(home: Path, url: str, arguments: list[str], line: str) -> None:
    done = said(home, *arguments, DRAFTMESH_URL=url)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(line.replace("{url}", url))


def test_a_client_that_is_not_installed_is_an_error_that_says_how(home: Path, url: str) -> None:
    done = said(home, "continue", "--url", url, PATH="/usr/bin:/bin")
    assert done.returncode == 2
    assert done.stderr == "error: client continue: 'cn' is not on PATH; npm install -g @continuedev/cli installs it\n"


def test_it_can_be_shown_without_being_installed(home: Path, url: str) -> None:
    assert said(home, "continue", "--url", url, "--print", PATH="/usr/bin:/bin").returncode == 0


@pytest.mark.parametrize("text", ["127.0.0.1:7071", "http://127.0.0.1:7071/", "http://127.0.0.1:7071/v1"])
def test_an_address_may_be_what_clients_are_configured_with(text: str) -> None:
    assert address(text) == "http://127.0.0.1:7071"


@pytest.mark.parametrize("text", ["", "http://", "http://me:secret@host:1", "http://h:port"])
def test_another_address_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(StartError) as error:
        address(text)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "sizes", "default"),
    [
        ([("a", "a"), ("b", "b"), ("default", "b")], {"a": 9, "b": 9, "default": 9}, "b"),
        ([("a", "a")], {"a": 9}, ""),
        ([("a", None)], {"a": 9}, ""),  # an older gateway's
        ([("default", "gone")], {"default": 9}, ""),
    ],
)
def test_the_model_that_is_called_default_is_meant_if_none_is_named(
    rows: list[tuple[str, str | None]], sizes: dict[str, int], default: str
) -> None:
    entries = [{"id": name, "max_model_len": 9} | ({"root": root} if root else {}) for name, root in rows]
    assert _models(json.dumps({"data": entries}).encode()) == (sizes, default)
