"""Connections bound silence, not replies, and tell a refusal from other errors; in virtual time."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.wire.broker import DISCONNECTED
from shared.wire.connection import SLOWEST, ForbiddenError, Parser, Patient
from tests.simulation.virtual import VirtualLoop

SILENCE_S = 2.0
TEXT = b"x" * 1000


def in_virtual_time(main: Coroutine[Any, Any, Any]) -> tuple[Any, float]:
    """What `main` returns, and how many seconds it took."""
    loop = VirtualLoop(1000.0)  # type: ignore[abstract] # all that asyncio itself asks for is there
    return loop.run(main), loop.time()


class Stream:
    """Gives a reply in pieces, each after so many seconds."""

    def __init__(self, reply: bytes, size: int, waits_s: list[float]) -> None:
        self._pieces = [reply[start : start + size] for start in range(0, len(reply), size)]
        self._waits_s = waits_s

    async def read(self, most: int) -> bytes:
        await asyncio.sleep(self._waits_s.pop(0))
        return self._pieces.pop(0)


def parser_of(stream: Stream) -> Parser:
    parser = Parser(1 << 16)
    encoder = SimpleNamespace(decode_responses=False)
    parser.on_connect(SimpleNamespace(_reader=stream, encoder=encoder))  # type: ignore[no-untyped-call]
    parser.limit_s = SILENCE_S
    return parser


def test_a_reply_may_take_any_time_as_long_as_it_goes_on() -> None:
    reply = b"$%d\r\n%s\r\n" % (len(TEXT), TEXT)
    parser = parser_of(Stream(reply, 100, [1.9] * 11))
    read, took_s = in_virtual_time(parser.read_response())
    assert read == TEXT
    assert took_s == pytest.approx(11 * 1.9)


@pytest.mark.parametrize("waits_s", [[2.1], [1.0, 1.0, 2.1]], ids=["at once", "in its middle"])
def test_a_reply_that_falls_silent_is_given_up(waits_s: list[float]) -> None:
    parser = parser_of(Stream(b"$1000\r\n" + TEXT, 100, waits_s))
    with pytest.raises(TimeoutError):
        in_virtual_time(parser.read_response())


class Wire:
    """A connection's base that takes `takes_s` to send anything."""

    def __init__(self, takes_s: float) -> None:
        self._takes_s = takes_s
        self._parser = SimpleNamespace(limit_s=None)

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        await asyncio.sleep(self._takes_s)


class Sender(Patient, Wire):  # type: ignore[misc] # a stand-in for redis-py's parser
    silence_s = SILENCE_S


def test_a_large_command_and_the_wait_for_its_reply_may_last_as_long_as_the_slowest_link_needs() -> None:
    sender = Sender(11.9)
    in_virtual_time(sender.send_packed_command([b"x" * SLOWEST] * 10))
    assert sender._parser.limit_s == SILENCE_S + 10
    in_virtual_time(Sender(1.9).send_packed_command(b"PING"))


@pytest.mark.parametrize(("takes_s", "size"), [(2.1, 1), (12.1, 10 * SLOWEST)])
def test_a_command_that_nobody_takes_is_given_up(takes_s: float, size: int) -> None:
    with pytest.raises(RedisTimeoutError):
        in_virtual_time(Sender(takes_s).send_packed_command([b"x" * size]))


@pytest.mark.parametrize("code", ["NOREPLICAS", "MISCONF", "OOM", "BUSY", "LOADING", "MASTERDOWN", "READONLY"])
def test_a_refusal_is_away_and_of_a_demoted_server_the_connection_ends(code: str) -> None:
    error = Parser.parse_error(f"{code} some words")
    assert isinstance(error, DISCONNECTED)
    assert isinstance(error, RedisConnectionError) == (code in ("LOADING", "MASTERDOWN", "READONLY"))


@pytest.mark.parametrize(
    "reply",
    [
        "WRONGTYPE Operation",
        "ERR syntax error",
        "BUSYGROUP exists",
        "NOGROUP none",
        "ERR ACL failure in script: User v",
    ],
)
def test_other_errors_are_errors(reply: str) -> None:
    error = Parser.parse_error(reply)
    assert type(error) is ResponseError
    assert not isinstance(error, DISCONNECTED)
    assert isinstance(Parser.parse_error("NOSCRIPT none"), NoScriptError)


@pytest.mark.parametrize(
    ("reply", "sent", "command"),
    [
        ("NOPERM User drafter-laptop has no permissions to run the 'memory|usage' command", b"", "memory|usage"),
        ("NOPERM No permissions to access a key", b"*3\r\n$4\r\nXADD\r\n$3\r\nkey\r\n", "xadd"),
        (
            "NOPERM No permissions to access a key",
            b"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nSET\r\n$1\r\nk\r\n*2\r\n$4\r\nSADD\r\n*1\r\n$4\r\nEXEC\r\n",
            "set sadd",
        ),
    ],
)
def test_a_forbidden_command_is_away_and_says_whose_and_which(reply: str, sent: bytes, command: str) -> None:
    error = Parser.parse_error(reply)
    assert isinstance(error, DISCONNECTED)
    assert isinstance(error, NoPermissionError)
    assert isinstance(error, ForbiddenError)
    error.tell("drafter-laptop", sent)
    assert (error.user, error.command) == ("drafter-laptop", command)
