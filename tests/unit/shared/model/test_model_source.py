"""What people write for a model becomes a file, or one line that says why not."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import StartError
from shared.model import model_source
from shared.model.download import Report
from shared.model.hub import Hub, HubError, Listing, RemoteFile
from tests.patience import PROCESS_S

GGUF = b"GGUF" + bytes(60)


class FakeHub:
    """A hub with a fixed list of files that remembers what was fetched."""

    def __init__(self, folder: Path, *files: str, unasked: str = "") -> None:
        self.folder = folder
        self.files = files
        self.unasked = unasked
        self.fetched: list[str] = []

    def list_files(self, repository: str) -> Listing:
        return Listing([RemoteFile(path=file, size=0) for file in self.files], self.unasked)

    def download(self, repository: str, file: RemoteFile, report: Report) -> Path:
        self.fetched.append(file.path)
        path = self.folder / Path(file.path).name
        path.write_bytes(GGUF)
        return path


class DeadHub(FakeHub):
    def list_files(self, repository: str) -> Listing:
        raise HubError("the hub cannot be reached")


def refusal(spec: str, hub: Hub | None = None) -> str:
    with pytest.raises(StartError) as caught:
        model_source.resolve(spec, "--draft-model", hub=hub)
    message = str(caught.value)
    assert message.startswith(f"--draft-model {spec}: ")
    assert "\n" not in message
    return message


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(GGUF)
    assert model_source.resolve(str(path)) == path


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(str(tmp_path / "absent.gguf"))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "a directory" in refusal(str(tmp_path))


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"{}")
    assert "not a GGUF file" in refusal(str(path))


def test_the_default_model_is_in_its_wheel() -> None:
    assert model_source.resolve("default").name == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_missing_wheel_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "make install" in refusal("default")


def test_a_quant_is_found_whatever_its_case(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, "README.md", "m-q4_k_m.gguf", "m-Q8_0.gguf")
    assert model_source.resolve("hf:user/repo:q8_0", hub=hub).name == "m-Q8_0.gguf"


def test_without_a_quant_the_usual_one_is_taken(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, "m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf")
    assert model_source.resolve("hf:user/repo", hub=hub).name == "m-Q4_K_M.gguf"


def test_the_only_model_needs_no_quant(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, "m-f16.gguf", "mmproj-f32.gguf")
    assert model_source.resolve("hf:user/repo", hub=hub).name == "m-f16.gguf"


def test_a_quant_named_in_full_wins_over_longer_ones(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, "m-Q3_K.gguf", "m-Q3_K_M.gguf", "m-Q3_K_S.gguf")
    assert model_source.resolve("hf:user/repo:Q3_K", hub=hub).name == "m-Q3_K.gguf"


def test_an_absent_quant_lists_those_that_exist(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, "m-Q8_0.gguf", "m-IQ4_XS.gguf", "m-bf16.gguf")
    assert refusal("hf:user/repo:Q5_1", hub).endswith(": no file matches Q5_1; the repository has IQ4_XS, Q8_0, bf16")


def test_an_ambiguous_quant_lists_the_candidates(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, "a-Q8_0.gguf", "b-Q8_0.gguf")
    assert "several files match, name one: a-Q8_0, b-Q8_0" in refusal("hf:user/repo:Q8_0", hub)
    assert model_source.resolve("hf:user/repo:b-Q8_0", hub=hub).name == "b-Q8_0.gguf"


def test_all_shards_are_fetched_and_the_first_is_the_model(tmp_path: Path) -> None:
    shards = [f"Q4_K_M/m-Q4_K_M-0000{index}-of-00003.gguf" for index in (1, 2, 3)]
    hub = FakeHub(tmp_path, *reversed(shards), "m-Q8_0.gguf")
    said: list[str] = []
    path = model_source.resolve("hf:user/repo:Q4_K_M", progress=said.append, hub=hub)
    assert (path.name, hub.fetched) == ("m-Q4_K_M-00001-of-00003.gguf", shards)
    assert said[-1] == f"fetching {shards[2]} (3 of 3)"


def test_a_missing_shard_is_refused_before_any_download(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, "m-Q8_0-00001-of-00002.gguf")
    assert "1 of the 2 shards" in refusal("hf:user/repo:Q8_0", hub)
    assert hub.fetched == []


def test_a_repository_without_models_is_refused(tmp_path: Path) -> None:
    assert "no GGUF model" in refusal("hf:user/repo", FakeHub(tmp_path, "model.safetensors"))


@pytest.mark.parametrize("spec", ["hf:", "hf:repo", "hf:a/b/c:Q8_0", "hf:user/:Q8_0", "hf.co/repo", "hf:../repo:Q8_0"])
def test_a_malformed_repository_is_refused(spec: str) -> None:
    assert "write hf:user/repo:QUANT" in refusal(spec)
    with pytest.raises(StartError, match="write hf:user/repo:QUANT"):
        model_source.check(spec, "--draft-model")


@pytest.mark.parametrize(
    ("name", "remote"),
    [
        ("hf:user/repo", "user/repo"),
        ("hf:hf.co/user/repo:Q8_0", "user/repo:Q8_0"),
        ("hf.co/user/repo:Q8_0", "user/repo:Q8_0"),
        ("https://huggingface.co/user/repo", "user/repo"),
        ("user/repo-GGUF:Q8_0", "user/repo-GGUF:Q8_0"),
        ("user/repo", None),  # a folder, as likely
        ("user/model.gguf", None),
        ("./repo:Q8_0", None),
        ("/user/repo:Q8_0", None),
        ("default", None),
    ],
)
def test_a_name_means_the_hub_where_it_can_mean_nothing_else(name: str, remote: str | None) -> None:
    assert model_source.on_hub(name) == remote


def test_a_path_that_exists_is_never_taken_for_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "repo:Q8_0").write_bytes(GGUF)
    monkeypatch.chdir(tmp_path)
    assert model_source.resolve("user/repo:Q8_0") == Path("user/repo:Q8_0")


def test_progress_is_told_by_tenths(tmp_path: Path) -> None:
    class SlowHub(FakeHub):
        def download(self, repository: str, file: RemoteFile, report: Report) -> Path:
            for done in range(300, 1001):
                report(done, 1000)
            return super().download(repository, file, report)

    said: list[str] = []
    model_source.resolve("hf:user/repo", progress=said.append, hub=SlowHub(tmp_path, "m-Q8_0.gguf"))
    assert said[2:4] == ["m-Q8_0.gguf: 400 bytes of 1.0 kB", "m-Q8_0.gguf: 500 bytes of 1.0 kB"]
    assert len(said) == 2 + 7


def test_an_unreachable_hub_is_one_line(tmp_path: Path) -> None:
    assert refusal("hf:user/repo", DeadHub(tmp_path)).endswith(": the hub cannot be reached")


@pytest.mark.parametrize(
    ("file", "name"), [("a/b/m.Q4_1.gguf", "m.Q4_1"), ("m-Q8_0-00001-of-00002.gguf", "m-Q8_0"), ("plain", "plain")]
)
def test_the_model_is_known_by_its_stem(file: str, name: str) -> None:
    assert model_source.model_name(file) == name


class Endpoint(http.server.BaseHTTPRequestHandler):
    """As much of the hub's HTTP interface as its client asks for one file."""

    def do_HEAD(self) -> None:
        self._file()

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/user/repo/tree/"):
            self._send(
                json.dumps([{"type": "file", "path": "m-Q8_0.gguf", "size": len(GGUF), "oid": "0" * 40}]).encode()
            )
        elif self.path.startswith("/api/"):
            self._send(b"{}", 404, {"X-Error-Code": "RepoNotFound"})
        else:
            self._file()

    def _file(self) -> None:
        self._send(GGUF, headers={"ETag": '"abc"', "X-Repo-Commit": "1" * 40})

    def _send(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def resolve_in_a_process(spec: str, **environment: str) -> str:
    """The hub's client reads its environment when it is imported, so each try gets a process of its own."""
    code = (
        "import sys; from shared import errors; from shared.model import model_source as models\n"
        "try: print(models.resolve(sys.argv[1]))\n"
        "except errors.StartError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, spec],
        env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=True,
    )
    return done.stdout.strip()


def test_the_real_client_downloads_once_and_then_works_offline(tmp_path: Path, endpoint: str) -> None:
    spec = "hf:user/repo:Q8_0"
    online = resolve_in_a_process(spec, HF_ENDPOINT=endpoint, HF_HOME=str(tmp_path))
    assert Path(online).read_bytes() == GGUF
    assert resolve_in_a_process(spec, HF_ENDPOINT=endpoint, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1") == online


def test_the_real_client_names_an_unknown_repository(tmp_path: Path, endpoint: str) -> None:
    said = resolve_in_a_process("hf:user/absent:Q8_0", HF_ENDPOINT=endpoint, HF_HOME=str(tmp_path))
    assert said == (
        "--target-model hf:user/absent:Q8_0: the hub has no such repository,"
        " or it is private (set HF_TOKEN to a token that may read it)"
    )


def test_the_real_client_offline_with_an_empty_cache_says_so(tmp_path: Path) -> None:
    said = resolve_in_a_process("hf:user/repo:Q8_0", HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert said == (
        "--target-model hf:user/repo:Q8_0: offline, as --offline, DRAFTMESH_OFFLINE or HF_HUB_OFFLINE says, and it is"
        " not on this machine (nothing of the repository is);"
        " with the network, `draftmesh pull hf:user/repo:Q8_0` fetches it"
    )


def test_a_pinned_model_is_the_file_with_that_digest_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF)
    digest = hashlib.sha256(GGUF).hexdigest()
    said: list[str] = []
    assert model_source.resolve(f"{path}#sha256={digest.upper()}", progress=said.append) == path
    assert said == ["checking the SHA-256 of m.gguf"]
    hub = FakeHub(tmp_path, "m-Q4_K_M.gguf")
    assert model_source.resolve(f"hf:user/m#sha256={digest}", hub=hub) == tmp_path / "m-Q4_K_M.gguf"
    path.write_bytes(GGUF + b"!")
    for spec, words in (
        (f"{path}#sha256={digest}", "not the model that was pinned"),
        (f"{path}#sha256=abc", "64 hexadecimal digits"),
        (f"{tmp_path}/big-00001-of-00002.gguf#sha256={digest}", "split model"),
        (f"{tmp_path}/none.gguf#sha256={digest}", "cannot be read"),
    ):
        with pytest.raises(StartError, match=words) as caught:
            model_source.resolve(spec, "--draft-model")
        assert "--draft-model" in str(caught.value)


def test_a_shards_name_on_the_hub_means_its_whole_model(tmp_path: Path) -> None:
    hub = FakeHub(tmp_path, *(f"m-Q4_K_M-0000{index}-of-00002.gguf" for index in (1, 2)), "m-Q8_0.gguf")
    for name in ("m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002"):
        assert model_source.resolve(f"hf:user/repo:{name}", hub=hub).name == "m-Q4_K_M-00001-of-00002.gguf"
