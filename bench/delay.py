"""A TCP proxy that adds time and nothing else: every byte arrives, in order, half the round trip later each way.

Throughput is not limited: what is under way waits in a queue per direction, as on a long line.
"""

import asyncio
import contextlib
import time
from asyncio import Queue, StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from typing import Self

from services.launcher.fleet.ports import LOOPBACK

_CHUNK = 1 << 16


class DelayingProxy:
    """Forwards connections to a port of this machine. `round_trip_ms` may be changed while it runs."""

    def __init__(
        self,
        port: int,
        round_trip_ms: float = 0.0,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`round_trip_ms` is what a question and its answer take longer than without the proxy."""
        self.round_trip_ms = round_trip_ms
        self._upstream = port
        self._clock, self._sleep = clock, sleep
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy is closing; asyncio's server would log it
        finally:
            self._connections.discard(task)

    async def _forward(self, reader: StreamReader, writer: StreamWriter) -> None:
        upstream_writer: StreamWriter | None = None
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(LOOPBACK, self._upstream)
            await asyncio.gather(self._carry(reader, upstream_writer), self._carry(upstream_reader, writer))
        except OSError:
            pass  # either end broke the connection: now both see it broken
        finally:
            writer.close()
            if upstream_writer is not None:
                upstream_writer.close()

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One direction, to the end of its stream."""
        line: Queue[tuple[float, bytes]] = Queue()
        await asyncio.gather(self._take(reader, line), self._deliver(line, writer))

    async def _take(self, reader: StreamReader, line: "Queue[tuple[float, bytes]]") -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(_CHUNK)
            except OSError:
                data = b""
            line.put_nowait((self._clock() + self.round_trip_ms / 2000, data))

    async def _deliver(self, line: "Queue[tuple[float, bytes]]", writer: StreamWriter) -> None:
        while True:
            due, data = await line.get()
            if (wait := due - self._clock()) > 0:
                await self._sleep(wait)
            if not data:
                break
            writer.write(data)
        with contextlib.suppress(OSError):
            writer.write_eof()
