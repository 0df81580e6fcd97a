"""API keys: kept as digests, shown once, and wanted wherever other machines or other sites' pages could come in."""

import asyncio
import hashlib
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.gateway.errors import ApiError
from services.gateway.http.guard import Guard
from services.gateway.http.keys_file import KeysFile, watch
from shared.errors import StartError
from shared.process import api_keys
from tests.patience import PROCESS_S


def test_a_new_key_is_in_the_file_as_its_digest_only(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = api_keys.add(file, "alice")
    assert key.startswith("dm-")
    assert len(key) > 40
    assert key not in file.read_text()
    assert api_keys.read(file) == {"alice": hashlib.sha256(key.encode()).digest()}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_keys_are_appended_and_names_are_their_own(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    keys = {api_keys.add(file, name) for name in ("alice", "", "")}
    assert len(keys) == len(api_keys.read(file)) == 3
    with pytest.raises(StartError, match=r"--name alice: .* has a key of that name"):
        api_keys.add(file, "alice")
    with pytest.raises(StartError, match="--name"):
        api_keys.add(file, "two words")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no key"),
        ("# only a comment\n\n", "holds no key"),
        ("sk-plain\n", "line 1 is not"),
        (f"# c\n{'a' * 64} x\n{'b' * 64} x\n", "line 3: the name x"),
        (f"{'a' * 63} x\n", "line 1"),
    ],
)
def test_a_damaged_file_is_refused_by_line_without_showing_it(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(StartError, match=complaint) as caught:
        api_keys.read(file)
    assert "sk-plain" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"--api-keys-file .*draftmesh keys new"):
        api_keys.read(tmp_path / "none")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.1"])
def test_this_machine_alone_needs_no_key(host: str) -> None:
    api_keys.require(host, keys=False, no_auth=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7"])
def test_other_machines_need_keys_or_a_word(host: str) -> None:
    api_keys.require(host, keys=True, no_auth=False)
    api_keys.require(host, keys=False, no_auth=True)
    with pytest.raises(StartError, match=r"--host .*--no-auth"):
        api_keys.require(host, keys=False, no_auth=False)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic right"},
        {"Authorization": "right"},
        {"x-api-key": ""},
        {"x-api-key": "righ"},
        {"x-api-key": "wrong\udcff"},
    ],
)
def test_every_wrong_key_gets_the_same_answer(headers: dict[str, str]) -> None:
    with pytest.raises(ApiError) as caught:
        Guard([api_keys.digest("right")]).check(headers)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert caught.value.message == "A valid API key is required, as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."


def test_all_keys_are_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr("services.gateway.http.guard.hmac.compare_digest", compare)
    known = [api_keys.digest(key) for key in ("one", "two", "three")]
    guard = Guard(known)
    caller = guard.check({"Authorization": "Bearer two"})
    assert caller == guard.check({"x-api-key": "two"}) == known[1].hex()
    assert compared.count(known[0]) == compared.count(known[2]) >= 2


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("", None),
        ("http://localhost:3000", None),
        ("http://127.0.0.1", None),
        ("http://[::1]:8080", None),
        ("vscode-webview://abc", None),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("http://127.0.0.1.evil.example", 403),
        ("http://192.0.2.1", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
def test_without_keys_pages_of_other_sites_stay_outside(origin: str, status: int | None) -> None:
    headers: dict[str, Any] = {"Origin": origin} if origin else {}
    Guard([], anyone=True).admit(headers)
    Guard([api_keys.digest("k")]).admit(headers)
    if status is None:
        Guard([]).admit(headers)
        return
    with pytest.raises(ApiError) as caught:
        Guard([]).admit(headers)
    assert (caught.value.status, caught.value.code) == (status, "origin_not_allowed")


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        (None, True),
        ("localhost", True),
        ("LOCALHOST.:8080", True),
        ("models.localhost:8080", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("[::ffff:127.0.0.1]:8080", True),
        ("192.0.2.1:8080", True),
        ("gateway:8080", True),
        ("host.docker.internal:8080", True),
        ("evil.example", False),
        ("evil.example:8080", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost@evil.example", False),
        ("evil.example.", False),
        ("evil.internal.example", False),
        ("[", False),
    ],
)
def test_without_keys_a_name_that_an_outsider_may_point_here_is_refused(host: str | None, admitted: bool) -> None:
    headers = {} if host is None else {"Host": host}
    Guard([], anyone=True).admit(headers)
    Guard([api_keys.digest("k")]).admit(headers)
    if admitted:
        Guard([]).admit(headers)
        return
    with pytest.raises(ApiError, match="set a key, or start it with --no-auth") as caught:
        Guard([]).admit(headers)
    assert (caught.value.status, caught.value.code) == (403, "host_not_allowed")


def test_keys_that_are_added_or_taken_out_count_while_the_gateway_runs(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first = api_keys.add(path, "first")
    file = KeysFile(str(path))
    guard = Guard(file.digests)
    assert not file.changed()
    second = api_keys.add(path, "second")
    assert file.changed()
    guard.replace(file.digests)
    guard.check({"x-api-key": second})
    path.write_text(path.read_text().splitlines()[1] + "\n")  # the first is revoked
    assert file.changed()
    guard.replace(file.digests)
    guard.check({"x-api-key": second})
    with pytest.raises(ApiError, match="valid API key"):
        guard.check({"x-api-key": first})


@pytest.mark.parametrize("text", ["", "sk-plain\n", None])
def test_a_file_that_holds_no_keys_any_more_opens_nothing(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "keys"
    key = api_keys.add(path, "only")
    file = KeysFile(str(path))
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert not file.changed()
    assert file.digests == [api_keys.digest(key)]


async def test_the_watch_tells_of_changes_only(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    api_keys.add(path, "first")
    told: list[int] = []
    slept = 0

    async def sleep(seconds: float) -> None:
        nonlocal slept
        slept += 1
        if slept == 2:
            api_keys.add(path, "second")
        if slept == 4:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await watch(KeysFile(str(path)), lambda digests: told.append(len(digests)), sleep)
    assert told == [2]


def test_the_command_prints_the_key_once_and_a_mistake_in_one_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-P", "-m", "services.launcher", "keys", "new", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_S)

    file = tmp_path / "keys"
    made = run("--api-keys-file", str(file), "--name", "alice")
    assert (made.returncode, made.stderr) == (0, "")
    assert api_keys.read(file) == {"alice": api_keys.digest(made.stdout.strip())}
    assert "--api-keys-file (empty): name the file" in run().stderr
    again = run("--api-keys-file", str(file), "--name", "alice")
    assert (again.returncode, again.stdout, len(again.stderr.splitlines())) == (2, "", 1)
