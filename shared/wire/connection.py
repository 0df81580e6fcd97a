"""Connections to Redis that tell a refusal which passes from an error which stays, and bound silences, not replies.

redis-py bounds a whole reply, so a large one never arrives over a slow link or in a busy loop. Here every piece that
arrives starts the wait again. A large command may take as long as the slowest link that we support needs for it.
"""

import asyncio
import re
from typing import Any, Final, cast

from redis._parsers import _AsyncHiredisParser
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.connection import Connection as PlainConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

SLOWEST: Final = 64 << 10  # bytes per second


class RefusedError(ResponseError):
    """The server works, but refuses this command for now; `code` says why. Nothing of the command was done."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.code = reply.partition(" ")[0]


class DemotedError(RefusedError, RedisConnectionError):
    """This server is not the primary now. Another one may stand at its address, so the connection is closed."""


class ForbiddenError(RefusedError, NoPermissionError):
    """The rights of `user` do not allow `command`, which may also be several, of which it is one.

    A command that a script may not use is another error, because nobody knows what the script had done before it.
    """

    user = ""
    command = ""

    def tell(self, user: str, sent: bytes) -> None:
        """Say whom it is about. `sent` is the beginning of what was sent; the reply itself may be more exact."""
        said = _SAID.search(str(self))
        names = [name.decode() for name in _SENT.findall(sent) if name not in _BRACKETS]
        self.user = user
        self.command = said[1] if said else " ".join(dict.fromkeys(names)).lower()


_SAID: Final = re.compile(r"run the '([^']+)' command")
_SENT: Final = re.compile(rb"\*\d+\r\n\$\d+\r\n([A-Za-z]+)\r\n")
_BRACKETS: Final = (b"MULTI", b"EXEC")


_REFUSALS: Final[dict[str, type[RefusedError]]] = {
    "NOREPLICAS": RefusedError,  # too few replicas, or they lag too far behind
    "MISCONF": RefusedError,  # it cannot write to its disk
    "OOM": RefusedError,  # its memory is full
    "BUSY": RefusedError,  # somebody's script runs for too long
    "READONLY": DemotedError,
    "MASTERDOWN": DemotedError,  # a replica that lost its primary
    "NOPERM": ForbiddenError,
}


class Parser(_AsyncHiredisParser):
    """Reads replies. Waits for each piece of one for at most `limit_s`."""

    limit_s: float | None = None

    @classmethod
    def parse_error(cls, response: str) -> RedisError:
        refusal = _REFUSALS.get(response.partition(" ")[0])
        return super().parse_error(response) if refusal is None else refusal(response)  # type: ignore[no-untyped-call]

    async def read_from_socket(self) -> bool:
        async with asyncio.timeout(self.limit_s):
            return bool(await super().read_from_socket())  # type: ignore[no-untyped-call]


class Patient:
    """A mix-in for connection classes: bounds how long the other end may be silent.

    redis-py's own timeouts are turned off: its bound on writes uses `asyncio.wait_for`, which on Python 3.11 may
    swallow a cancellation (cpython#86296), so that the cancelled task runs for ever.
    """

    silence_s: float
    username: str | None
    _parser: Parser
    _sent: Any = b""

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        try:
            return await cast(AbstractConnection, super()).read_response(*arguments, **options)
        except ForbiddenError as error:
            first = self._sent[0] if isinstance(self._sent, list) else self._sent
            error.tell(self.username or "default", first)
            raise

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        self._sent = command
        size = sum(map(len, command)) if isinstance(command, list) else len(command)
        limit_s = self.silence_s + size / SLOWEST
        connection = cast(AbstractConnection, super())
        try:
            async with asyncio.timeout(limit_s):
                await connection.send_packed_command(command, check_health)
        except TimeoutError:
            raise RedisTimeoutError("Timeout writing to socket") from None
        self._parser.limit_s = limit_s  # part of the command may still be on its way


def connection_class(tls: bool, silence_s: float) -> type[AbstractConnection]:
    """A class of connections whose other end may be silent for `silence_s`. They need `Parser` as their parser."""
    base = SSLConnection if tls else PlainConnection
    return type("PatientConnection", (Patient, base), {"silence_s": silence_s})
