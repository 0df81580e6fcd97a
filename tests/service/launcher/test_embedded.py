"""The embedded Valkey: closed to other machines, or open to those that know a password which no command line tells."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from services.launcher.fleet import embedded
from services.launcher.fleet.join import address
from services.launcher.fleet.machines import Token
from shared.wire import keys
from tests.server import valkey_server


def test_on_the_loopback_there_is_no_password_and_no_address_for_others() -> None:
    server = embedded.place("127.0.0.1", 0)
    assert (server.url, server.shared_url) == (f"redis://127.0.0.1:{server.port}/0", "")


def test_the_password_is_in_a_file_for_this_user_only(tmp_path: Path) -> None:
    server = embedded.place("0.0.0.0", 0)
    program = embedded.program(server, tmp_path, {})
    assert len(server.password) >= 32
    assert not [part for part in program.command if server.password in part]
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"requirepass {server.password}\n" in file.read_text()


def test_each_server_has_a_password_of_its_own() -> None:
    assert embedded.place("0.0.0.0", 0).password != embedded.place("0.0.0.0", 0).password


TOKEN = Token("laptop", "a-token-of-sixteen")


def test_others_are_told_an_address_that_is_not_the_loopback() -> None:
    server = embedded.place("0.0.0.0", 0, lambda: [TOKEN])
    start, end = "redis://", f":{server.port}/0"
    assert server.shared_url.startswith(start)
    assert server.shared_url.endswith(end)
    assert server.shared_url.removeprefix(start).removesuffix(end) not in ("0.0.0.0", "127.0.0.1", "")


@pytest.mark.parametrize(
    ("hosts", "shown"), [(("192.0.2.7", "127.0.0.1"), "192.0.2.7"), (("fd00::7", "127.0.0.1"), "[fd00::7]")]
)
def test_an_address_that_was_asked_for_is_the_one_that_is_told(hosts: tuple[str, ...], shown: str) -> None:
    server = embedded.Embedded(hosts=hosts, port=1, password="p", tokens=(TOKEN,))
    assert (server.url, server.shared_url) == ("redis://:p@127.0.0.1:1/0", f"redis://{shown}:1/0")


def test_a_machine_that_joins_may_do_what_a_drafter_does_and_no_more(tmp_path: Path) -> None:
    server = embedded.place("0.0.0.0", 0, lambda: [TOKEN])
    program = embedded.program(server, tmp_path, {})
    assert TOKEN.password not in (tmp_path / "valkey.conf").read_text()
    with running(program.command, server.url), redis.Redis.from_url(address(server.shared_url, TOKEN)) as joined:
        assert joined.smembers(keys.cards()) == set()
        joined.set(keys.card("drafter-laptop@1"), b"x", px=1000)
        forbidden = (
            ("SET", keys.card("verifier-1"), "x"),
            ("SET", keys.card("drafter-1"), "x"),
            ("GET", keys.turn("call")),
            ("CONFIG", "GET", "*"),
            ("FLUSHALL",),
            ("ACL", "LIST"),
        )
        for command in forbidden:
            with pytest.raises(redis.exceptions.NoPermissionError):
                joined.execute_command(*command)


@contextmanager
def running(command: tuple[str, ...], url: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis.from_url(url, retry=Retry(ExponentialBackoff(), 20)) as client:
            client.ping()
        yield
    finally:
        process.terminate()
        process.wait(10)


def test_an_open_server_answers_only_those_who_know_the_password() -> None:
    with valkey_server("0.0.0.0") as server:
        with redis.Redis.from_url(server.url) as knowing:
            assert knowing.ping()
        without = "redis://" + server.url.partition("@")[2]
        with redis.Redis.from_url(without) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
