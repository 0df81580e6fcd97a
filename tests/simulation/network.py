"""A Redis behind a network that loses, repeats and delays: fakeredis for what commands do, ours for when and whether.

`Link` stands for one process's clients. Like redis-py as `broker` sets it up, a command is sent again after a
lost connection or a timeout, up to three times, and a blocking read never. A command whose reply is lost was executed.
One that came late is executed late, after its sender gave up and perhaps sent it again. Of a pipeline that
breaks any first part may have been executed, unless it is a transaction.
"""

import asyncio
import random
import zlib
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, cast

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.wire.broker import Broker
from shared.wire.commands import Redis
from shared.wire.connection import RefusedError
from tests.simulation.direct import direct, encode
from tests.simulation.virtual import Process, VirtualLoop

SILENCE_S: Final = 2.0
RETRIES: Final = 3
_BLOCKING: Final = frozenset({"xread", "xreadgroup"})
_SCRIPTS: Final = frozenset({"eval", "evalsha"})
_READS: Final = frozenset(
    {"exists", "get", "hget", "hgetall", "mget", "ping", "pttl", "smembers", "xrange", "xread", "xrevrange", "zrange"}
)

Arguments = tuple[Any, ...]
Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """One call of a client's method."""

    name: str
    arguments: Arguments
    options: Options

    @property
    def keys(self) -> Arguments:
        """The streams that it may add to or remove."""
        if self.name in _SCRIPTS:
            return self.arguments[2 : 2 + self.arguments[1]]
        return self.arguments[:1] if self.name in ("xadd", "delete") else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How likely each mishap is per round trip, and how long a round trip takes at most in milliseconds."""

    lost: float = 0.0  # the request, so that nothing happens
    silent: float = 0.0  # the reply
    late: float = 0.0  # the request, by up to `late_s`
    late_s: float = 3.0
    hop_ms: float = 2.0


CALM: Final = Weather()


@dataclass
class _Read:
    """A blocking read that waits."""

    command: Command
    reply: Callable[[object], None]
    open: bool = True

    @cached_property
    def streams(self) -> frozenset[bytes]:
        return frozenset(map(encode, self.command.arguments[-1]))


@dataclass(slots=True)
class Server:
    """The one Redis, and the wire to it. `sky` says what the weather is now."""

    loop: VirtualLoop
    random: random.Random
    sky: Callable[[], Weather]
    redis: Any
    reads: list[_Read] = field(default_factory=list)
    commands: int = 0
    refuses: bool = False  # to write, as with too few replicas
    tell: Callable[[str], object] | None = None  # hears of everything that is executed
    trace: int = 0  # of everything that was executed, and when
    _nobody: Context = field(default_factory=Context)

    def later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """In nobody's name: the wire outlives whoever sent something."""
        self.loop.call_later(seconds, call, *arguments, context=self._nobody)

    def hop_s(self) -> float:
        return self.random.uniform(0.05, self.sky().hop_ms) / 1000

    def execute(self, command: Command) -> object:
        """A reply, or the error that it is."""
        self.commands += 1
        said = f"{self.loop.time()} {command.name} {command.arguments} {command.options}"
        self.trace = zlib.crc32(said.encode(), self.trace)
        try:
            if command.name == "info":  # which fakeredis does not have
                return {"used_memory": 0, "maxmemory": 0}
            if self.refuses and command.name not in _READS:
                raise RefusedError("NOREPLICAS Not enough good replicas to write.")
            reply = getattr(self.redis, command.name)(*command.arguments, **command.options)
        except RedisError as error:
            reply = error
        if self.tell is not None:
            self.tell(f"{said} -> {reply!r}")
        for key in command.keys:
            for read in [read for read in self.reads if encode(key) in read.streams]:
                self._try(read)
        return reply

    def _try(self, read: _Read) -> bool:
        reply = self.execute(read.command)
        if reply or isinstance(reply, RedisError):
            self.close(read)
            read.reply(reply)
            return True
        return False

    def read(self, command: Command, block_ms: int, reply: Callable[[object], None]) -> _Read:
        """Reply as soon as there is something, at the latest after `block_ms`."""
        read = _Read(command, reply)
        self.reads.append(read)
        if not self._try(read):
            self.later(block_ms / 1000, self._give_up, read)
        return read

    def _give_up(self, read: _Read) -> None:
        if read.open:
            self.close(read)
            read.reply([])

    def restart(self) -> None:
        """With persistence: the data is there again, connections and scripts are not."""
        self.redis.script_flush()
        for read in list(self.reads):
            self.close(read)
            read.reply(RedisConnectionError("the server went away"))

    def forget(self) -> str:
        """Lose one of its keys; returns its name, "" if there is none. Each kind of key is as likely as any other."""
        kinds: dict[str, list[str]] = {}
        for name in sorted(key.decode() for key in self.redis.keys("*")):
            _, kind, *rest = name.split(":")
            kinds.setdefault(rest[-1] if kind.startswith("{") else kind, []).append(name)
        if not kinds:
            return ""
        lost = self.random.choice(self.random.choice(list(kinds.values())))
        self.execute(Command("delete", (lost,), {}))
        return lost

    def close(self, read: _Read) -> None:
        if read.open:
            read.open = False
            self.reads.remove(read)


class Link:
    """One process's connections to the server."""

    def __init__(self, server: Server, process: Process) -> None:
        self.server = server
        self.process = process
        self.cut = False  # nothing gets through at all
        self.broker = Broker(cast(Redis, Client(self, RETRIES)), cast(Redis, Client(self, 0)))

    async def call(self, commands: Sequence[Command], retries: int, atomic: bool = False) -> list[object]:
        """The replies; errors among them are replies, too. `atomic`: all are executed or none is."""
        for attempt in range(retries + 1):
            try:
                return await self._once(commands, atomic)
            except (RedisConnectionError, RedisTimeoutError):
                if attempt == retries:
                    raise
            await asyncio.sleep(self.server.random.uniform(0.0, 0.01 * 2**attempt))
        raise AssertionError

    async def _once(self, commands: Sequence[Command], atomic: bool) -> list[object]:
        server = self.server
        if server.loop.closing:
            raise RedisConnectionError("the run is over")
        weather = server.sky()
        answer: asyncio.Future[list[object]] = server.loop.create_future()
        if self.cut:
            await asyncio.sleep(server.hop_s())
            raise RedisConnectionError("no route")
        block_ms = commands[0].options.get("block") if commands[0].name in _BLOCKING else None
        silence_s = SILENCE_S + (block_ms or 0) / 1000
        server.later(silence_s, _fail, answer, RedisTimeoutError("Timeout reading from socket"))
        fate = server.random.random()
        if fate < weather.lost:
            server.later(server.hop_s(), _fail, answer, RedisConnectionError("connection lost"))
            return await answer
        silent = fate < weather.lost + weather.silent
        delay_s = server.hop_s()
        if not silent and fate < weather.lost + weather.silent + weather.late:
            delay_s = server.random.uniform(0.0, weather.late_s)
        if block_ms is None:
            server.later(delay_s, self._serve, commands, atomic, answer, silent)
        else:
            server.later(delay_s, self._block, commands[0], block_ms, answer, silent)
        return await answer

    def _serve(
        self, commands: Sequence[Command], atomic: bool, answer: "asyncio.Future[list[object]]", silent: bool
    ) -> None:
        server = self.server
        if silent and not atomic and server.random.random() < 0.5:
            commands = commands[: server.random.randrange(len(commands))]
        self._reply([server.execute(command) for command in commands], answer, silent)

    def _block(self, command: Command, block_ms: int, answer: "asyncio.Future[list[object]]", silent: bool) -> None:
        options = {name: value for name, value in command.options.items() if name != "block"}
        waiting = Command(command.name, command.arguments, options)
        read = self.server.read(waiting, block_ms, lambda reply: self._reply([reply], answer, silent))
        if not read.open:
            return
        # The server learns that a reader has gone a little later, or only when it speaks, if the host fell silent.
        answer.add_done_callback(lambda _: self.server.later(self.server.hop_s(), self.server.close, read))
        if self.server.random.random() < 0.5:
            self.process.on_death.append(lambda: self.server.later(self.server.hop_s(), self.server.close, read))

    def _reply(self, replies: list[object], answer: "asyncio.Future[list[object]]", silent: bool) -> None:
        if silent:
            self.server.later(self.server.hop_s(), _fail, answer, RedisConnectionError("connection lost"))
        else:
            self.server.later(self.server.hop_s(), _answer, answer, replies)


def _answer(future: "asyncio.Future[list[object]]", replies: list[object]) -> None:
    if not future.done():
        future.set_result(replies)


def _fail(future: "asyncio.Future[list[object]]", error: RedisError) -> None:
    if not future.done():
        future.set_exception(error)


class Client:
    """`shared.wire.commands.Redis` over a link."""

    def __init__(self, link: Link, retries: int) -> None:
        self._link = link
        self._retries = retries

    def pipeline(self, transaction: bool) -> "Pipeline":
        return Pipeline(self._link, self._retries, transaction)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def send(*arguments: Any, **options: Any) -> object:
            [reply] = await self._link.call([Command(name, arguments, options)], self._retries)
            if isinstance(reply, RedisError):
                raise reply
            return reply

        return send


class Pipeline:
    """`shared.wire.commands.Pipeline` over a link."""

    def __init__(self, link: Link, retries: int, atomic: bool) -> None:
        self._link = link
        self._retries = retries
        self._atomic = atomic
        self._commands: list[Command] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self._commands.append(Command(name, arguments, options))

    async def execute(self, raise_on_error: bool = True) -> list[object]:
        replies = await self._link.call(self._commands, self._retries, self._atomic) if self._commands else []
        for reply in replies:
            if raise_on_error and isinstance(reply, RedisError):
                raise reply
        return replies


def server(loop: VirtualLoop, source: random.Random, sky: Callable[[], Weather]) -> Server:
    """An empty server."""
    redis = direct()
    redis.flushall()
    redis.script_flush()
    return Server(loop, source, sky, redis)
