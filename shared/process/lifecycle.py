"""Runs a service until it is asked to stop, then drains it; if one of its loops dies, the process ends.

A process that lost a loop must not look healthy, so loops run in `Loops`. The first SIGINT or SIGTERM sets `stop`; a
second one ends the process at once.
"""

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import structlog

from shared.errors import StartError
from shared.fleet.registry import HEARTBEAT_S, Registry
from shared.settings.options import DEFAULT_DRAIN_S
from shared.wire.broker import DISCONNECTED, Reconnect
from shared.wire.connection import ForbiddenError
from shared.wire.messages import Announced

logger = structlog.get_logger()

INSIST_S: Final = 5.0  # a loop that still runs so long after its cancellation is cancelled again
CLOSING_S: Final = 5.0  # from the end of the drain to SIGKILL, for closing what remains
GRACE_S: Final = DEFAULT_DRAIN_S + CLOSING_S  # from the request to stop to SIGKILL


def instance_name(service: str) -> str:
    """A fresh name for this process: readable, unique, and new after every restart."""
    return f"{service}-{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(3)}"


class LoopEnded(RuntimeError):
    """A loop that should run as long as its service has ended or was cancelled."""


class Loops:
    """A task group of loops.

    Until `let_end`, the end of any loop ends all. A plain TaskGroup continues if one of its tasks returns, or is
    cancelled by a faulty library.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []
        self._owner: asyncio.Task[Any] | None = None
        self._may_end = False
        self._cancelled = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._owner = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._may_end = self._cancelled = True  # the group cancels the rest
        again = asyncio.create_task(self._cancel_again())
        try:
            await self._group.__aexit__(kind, error, trace)
        finally:
            again.cancel()

    async def _cancel_again(self) -> None:
        """Cancel loops that still run: a library may swallow a cancellation, and the service would hang."""
        while True:
            await asyncio.sleep(INSIST_S)
            for task in self._tasks if self._cancelled else ():
                task.cancel()

    def start(self, loop: Callable[[], Coroutine[Any, Any, None]], name: str) -> "asyncio.Task[None]":
        """Run a loop. Awaiting the task raises what the loop raises, or `LoopEnded`."""
        task = self._group.create_task(self._watch(loop, name), name=name)
        task.add_done_callback(partial(self._ended, name))
        self._tasks.append(task)
        return task

    def let_end(self) -> None:
        """Let loops return and be cancelled from now on; an exception still ends all."""
        self._may_end = True

    def cancel(self) -> None:
        self.let_end()
        self._cancelled = True
        for task in self._tasks:
            task.cancel()

    def _ended(self, name: str, task: "asyncio.Task[None]") -> None:
        """End all if the task was cancelled before its first step: `_watch` never ran, so it could not say so."""
        assert self._owner is not None
        if task.cancelled() and not self._may_end and not self._owner.cancelling():
            self._may_end = True
            self._group.create_task(self._fail(name))

    async def _fail(self, name: str) -> None:
        raise LoopEnded(name)

    async def _watch(self, loop: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        try:
            await loop()
        except asyncio.CancelledError:
            assert self._owner is not None
            if self._may_end or self._owner.cancelling():
                raise
        except BaseException:
            self._may_end = True
            raise
        if not self._may_end:
            self._may_end = True
            raise LoopEnded(name)


def run(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `main(stop)` to its end. Raises the `StartError` of a loop that had one; exits with 1 if a loop died."""
    try:
        import uvloop

        loop_factory: Any = uvloop.new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            runner.run(_supervised(main))
        except BaseExceptionGroup as group:
            start_errors = group.subgroup(StartError)
            if start_errors is not None:
                raise _leaves(start_errors)[0] from None
            for leaf in _leaves(group):
                logger.error("service_failed", exc_info=leaf)
            sys.exit(1)


def _leaves(group: "BaseExceptionGroup[BaseException]") -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


async def _supervised(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()

    def ask() -> None:
        if stop.is_set():
            os._exit(1)  # a second signal: the user is in a hurry, and no committed token can be lost
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    await main(stop)


_RIGHTS: Final = "its rights in Redis do not allow {}; `draftmesh acl --update` writes the rights of this release"


async def insist(what: str, action: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    """Retry the action while Redis is away, until it succeeds or `stop` is set; it must be repeatable.

    Raises `StartError` if the user's rights do not allow it.
    """
    reconnect = Reconnect(what)
    while not stop.is_set():
        try:
            await action()
            return reconnect.succeeded()
        except ForbiddenError as error:
            raise StartError("--redis", f"user {error.user}", _RIGHTS.format(error.command)) from None
        except DISCONNECTED as error:
            await reconnect.failed(error)
    return None


async def nothing() -> None:
    """Do nothing: the default for `besides`."""


async def heartbeat(
    registry: Registry, card: Callable[[], Announced], besides: Callable[[], Awaitable[None]] = nothing
) -> None:
    """Publish `card()` and call `besides`, for ever; survives the absence of Redis and logs it once."""

    async def beat() -> None:
        await registry.beat(card())
        await besides()

    reconnect = Reconnect("heartbeat")
    while True:
        await reconnect.insist(beat)
        await asyncio.sleep(HEARTBEAT_S)
