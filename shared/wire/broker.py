"""The two kinds of Redis client that a process holds, and the embedded server of `draftmesh up`.

A command fails after two seconds of silence and is retried only because every write is an idempotent script or a hint.
Blocking reads are never retried by the client: redis-py would re-send them after a lost reply and skip entries.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

import structlog
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as Client
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import StartError
from shared.wire.commands import Redis
from shared.wire.connection import ForbiddenError, Parser, RefusedError, connection_class

logger = structlog.get_logger()

_FORM: Final = "an address such as redis://host:6379/0"
# The only allowed parameters of an address: others would change our clients' behaviour, or turn off TLS's checks.
_CREDENTIAL_PARAMETERS: Final = frozenset({"db", "username", "password"})
_FILES: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_CREDENTIALS: Final = re.compile(r"^([\w+.-]*://)?.*@")  # greedy: a password may hold an @ that should be %40
_PASSWORD: Final = re.compile(r"([?&]password=)[^&#]*", re.IGNORECASE)
BLOCK_MS = 2000  # how long one blocking read waits, and so how late a stop is noticed
_SILENCE_S: Final = 2.0  # so long may the server be silent while a reply is due
# Redis is away: it cannot be reached, or it refuses for now. Whatever fails so is tried again later.
DISCONNECTED = (RedisConnectionError, RedisTimeoutError, RefusedError, OSError, TimeoutError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broker:
    """`redis` for commands, `blocking` for reads that wait."""

    redis: Redis
    blocking: Redis


@asynccontextmanager
async def connect(url: str, blocking_connections: int = 8) -> AsyncIterator[Broker]:
    """Both clients for `url`, closed at the end.

    Raises `BrokerError` if `url` is not an address, or if the server does not answer now.
    """
    check(url)
    redis = _client(url, 16, _SILENCE_S, Retry(ExponentialWithJitterBackoff(), 3))
    blocking = _client(url, blocking_connections, _SILENCE_S + BLOCK_MS / 1000, Retry(NoBackoff(), 0))
    try:
        try:
            await redis.ping()
        except (RedisError, OSError) as error:
            reason = " ".join(str(error).split())
            raise BrokerError(url, f"no answer ({reason}); is the server running and the address right?") from None
        yield Broker(cast(Redis, redis), cast(Redis, blocking))
    finally:
        with suppress(RedisError, OSError):
            await redis.aclose()
            await blocking.aclose()
        await redis.connection_pool.disconnect()
        await blocking.connection_pool.disconnect()


def _client(url: str, connections: int, silence_s: float, retry: Retry) -> Client:
    pool: Any = BlockingConnectionPool.from_url(
        url,
        protocol=2,
        max_connections=connections,
        timeout=2,
        socket_connect_timeout=2,
        socket_timeout=None,
        socket_keepalive=True,
        parser_class=Parser,
        retry=retry,
    )
    pool.connection_class = connection_class(issubclass(pool.connection_class, SSLConnection), silence_s)
    return Client(connection_pool=pool)


def check(url: str) -> None:
    """Raise `BrokerError` if `url` cannot be the address of a Redis.

    With `rediss://` the server must prove its name, by the system's authorities or those in `?ssl_ca_certs=FILE` (or
    `ssl_ca_path`); `&ssl_certfile=FILE&ssl_keyfile=FILE` prove ours.
    """
    try:
        parsed: Mapping[str, Any] = parse_url(url)
        sound = "://" in url  # redis-py reads `redis:host` as an address without a host, and connects to localhost
        given = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    except ValueError:
        sound = False
    if not sound:
        raise BrokerError(url, _FORM)
    for name, value in given.items():
        if name in _CREDENTIAL_PARAMETERS:
            continue
        if name not in _FILES:
            raise BrokerError(url, f"its parameters may be {', '.join(_FILES)}, not {name}")
        if parsed.get("connection_class") is not SSLConnection:
            raise BrokerError(url, f"{name} is for TLS: write rediss://")
        if not Path(value).exists():
            raise BrokerError(url, f"{name}: there is no such file here")


def redacted(url: str) -> str:
    """`url` for people to read: host, port and database, but no user and password."""
    return _CREDENTIALS.sub(lambda match: f"{match[1] or ''}***@", _PASSWORD.sub(r"\1***", url))


class BrokerError(StartError):
    """Redis cannot be reached; the message names the option and the address, but no password."""

    def __init__(self, url: str, allowed: str) -> None:
        super().__init__("--redis", redacted(url), allowed)


class Reconnect:
    """Full-jitter waits between tries, for ever, and one log line per change of state."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures = 0

    def succeeded(self) -> None:
        if self._failures:
            logger.info("redis_reconnected", reader=self._what, failures=self._failures)
        self._failures = 0

    async def failed(self, error: BaseException) -> None:
        if self._failures:
            pass
        elif isinstance(error, ForbiddenError):
            logger.error("redis_forbidden", reader=self._what, user=error.user, command=error.command)
        else:
            code = error.code if isinstance(error, RefusedError) else type(error).__name__
            logger.warning("redis_disconnected", reader=self._what, error=code)
        self._failures += 1
        await asyncio.sleep(random.uniform(0.1, min(5.0, 0.1 * 2.0**self._failures)))

    async def insist(self, action: Callable[[], Awaitable[T]]) -> T:
        """Call `action` until Redis answers, and return its result; `action` must be repeatable."""
        while True:
            try:
                result = await action()
            except DISCONNECTED as error:
                await self.failed(error)
            else:
                self.succeeded()
                return result
