"""Machines are invited into a running fleet and locked out of it one by one."""

import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from services.launcher.facts import run_file
from services.launcher.facts.run_file import FleetRun
from services.launcher.fleet import machines
from services.launcher.fleet.join import address, asks
from services.launcher.fleet.machines import FIRST, Machines, Token
from shared.errors import StartError
from shared.wire import keys
from tests.server import Server, valkey_server


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def opened(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server of a running `up --lan`."""
    with valkey_server("0.0.0.0") as server:
        run = FleetRun(pid=1, gateway="http://127.0.0.1:1", redis=server.url, logs="", started=time.time())
        monkeypatch.setattr(machines, "chosen", lambda up: run)
        yield server


def client(server: Server, token: Token) -> redis.Redis:
    return redis.Redis.from_url(address("redis://" + server.url.rpartition("@")[2], token))


def test_a_token_is_made_once_and_kept_for_its_owner_only(state: Path) -> None:
    [first] = Machines().tokens()
    assert first.machine == FIRST
    assert len(first.password) >= 32
    assert Machines().tokens() == [first] == [Machines().invite(FIRST)]
    folder = state / "draftmesh/machines"
    [file] = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    laptop = Machines().invite("laptop")
    assert Machines().tokens() == [laptop, first]
    assert laptop.password != first.password
    Machines().revoke("laptop")
    assert Machines().tokens() == [first]
    assert Machines().invite("laptop").password != laptop.password


@pytest.mark.parametrize("content", ["short\n", "\xff" * 20])
def test_a_file_that_holds_no_token_is_told(state: Path, content: str) -> None:
    file = state / "draftmesh/machines/laptop"
    file.parent.mkdir(parents=True)
    file.write_text(content, encoding="latin-1")
    with pytest.raises(StartError, match="laptop"):
        Machines().tokens()


def test_a_name_that_is_none_is_one_sentence(state: Path) -> None:
    for name in ("", "../x", "A", "a.b", "a b"):
        for act in (Machines().invite, Machines().revoke):
            with pytest.raises(StartError, match="small letters"):
                act(name)
    with pytest.raises(StartError, match="was not invited"):
        Machines().revoke("laptop")


def test_machines_are_invited_and_revoked_while_the_fleet_runs(opened: Server) -> None:
    said: list[str] = []
    assert asks("redis://" + opened.url.rpartition("@")[2])
    for name in ("laptop", "desk"):
        machines.invite(name, None, said.append)
    laptop, desk = (Machines().invite(name) for name in ("laptop", "desk"))
    assert said[0] == f"token of laptop: {laptop}"
    with client(opened, laptop) as one, client(opened, desk) as other:
        one.set(keys.card("drafter-laptop@1"), b"x", px=1000)
        with pytest.raises(redis.exceptions.NoPermissionError):
            one.set(keys.card("drafter-desk@1"), b"x", px=1000)
        machines.revoke("laptop", None, said.append)
        assert said[-1] == "laptop cannot join any more, and its connections are closed"
        with pytest.raises(redis.exceptions.ConnectionError):
            one.ping()
        assert other.ping()


def test_without_a_running_fleet_the_next_one_knows_them(state: Path) -> None:
    assert run_file.chosen(None) is None
    said: list[str] = []
    machines.invite("laptop", None, said.append)
    assert said[1] == "no `up` of yours is open to other machines now; the next `up --lan` knows the token"
    machines.revoke("laptop", None, said.append)
    assert said[2] == "laptop cannot join any more"
