"""`draftmesh top`: the fleet live, once a second, until `q` or Ctrl-C; one frame without a terminal."""

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import structs
from rich.console import Console
from rich.live import Live

from services.launcher.facts.fleet_reader import list_cards, read_cards
from services.launcher.look.status import NOBODY
from services.launcher.look.top_frame import TopView, render, total_speed
from shared.fleet.describe import describe
from shared.fleet.fleet_values import FleetStatus
from shared.fleet.registry import Registry
from shared.wire.broker import DISCONNECTED, BrokerError, connect

REFRESH_S: Final = 1.0
_SPEEDS: Final = 60  # readings of the line of speeds: a minute of them
_QUIT: Final = b"qQ\x03"  # Ctrl-C, should a terminal send it as a key


def run(redis: str) -> int:
    """Show the fleet until it is asked to end: 0; 1 without a terminal and without any process.

    Raises `BrokerError` if Redis does not answer at the start; waits for it later.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        return _once(redis, console)
    asyncio.run(_live(redis, console))
    return 0


def _once(redis: str, console: Console) -> int:
    fleet = describe(asyncio.run(read_cards(redis)))
    if not fleet.processes:
        console.print(NOBODY)
        return 1
    view = TopView(fleet=fleet, speeds=[total_speed(fleet)], now=time.time())
    lines = 20 + sum(len(rows) for rows in (fleet.processes, fleet.drafters, fleet.requests))  # a file has room for all
    console.print(render(view, console.width, lines))
    return 0


class Top:
    """The loop: reads, shows and pauses until it is stopped."""

    def __init__(
        self,
        read: Callable[[], Awaitable[FleetStatus]],
        show: Callable[[TopView], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`read` raises `BrokerError` or one of `DISCONNECTED` while Redis is away; it then keeps the latest values."""
        self._read = read
        self._show = show
        self._clock = clock
        self._wake = asyncio.Event()
        self._ended = False
        self._view = TopView(fleet=structs.replace(describe([]), verdict=""), speeds=(), now=0.0)

    async def run(self, pause: Callable[[], Awaitable[None]] | None = None) -> None:
        """`pause` waits for the next reading; by default a second, or until `stop`."""
        speeds: deque[float] = deque(maxlen=_SPEEDS)
        while not self._ended:
            trouble = ""
            fleet = self._view.fleet
            try:
                fleet = await self._read()
                speeds.append(total_speed(fleet))
            except (BrokerError, *DISCONNECTED) as error:
                trouble = f"Redis does not answer, so these figures are old: {str(error) or 'no answer in time'}"
            self._view = TopView(fleet=fleet, speeds=tuple(speeds), now=self._clock(), trouble=trouble)
            self._show(self._view)
            await (pause or self._pause)()

    def stop(self) -> None:
        """End the loop now."""
        self._ended = True
        self._wake.set()

    def redraw(self) -> None:
        """Draw again, because the terminal changed its size."""
        self._show(self._view)

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_S):
                await self._wake.wait()


async def _live(redis: str, console: Console) -> None:
    async with connect(redis) as broker:
        registry = Registry(broker.redis)

        async def read() -> FleetStatus:
            return describe(await list_cards(registry, redis))

        with Live(console=console, screen=True, auto_refresh=False) as live:

            def show(view: TopView) -> None:
                live.update(render(view, console.width, console.height), refresh=True)

            top = Top(read, show)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, top.stop)
            loop.add_signal_handler(signal.SIGWINCH, top.redraw)
            with _keys(loop, top.stop):
                await top.run()


@contextmanager
def _keys(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` when one of the keys that quit is pressed; restores the terminal at the end."""
    if not sys.stdin.isatty():
        yield
        return
    import os
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed() -> None:
        keys = os.read(descriptor, 64)
        if not keys or any(key in _QUIT for key in keys):  # nothing: the terminal is gone
            stop()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
