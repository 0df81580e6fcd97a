"""A TCP proxy before a server that loses replies or stops forwarding, as networks do."""

import asyncio
from contextlib import suppress
from typing import Self

_PIECE = 1 << 16


class Proxy:
    """Forwards connections to `host`:`port` from `port` of its own. Use it as an async context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._lose_every = 0
        self._replies = 0
        self._connections: set[asyncio.Task[None]] = set()
        self.lost = 0
        self.holding = 0  # pieces that wait for `heal`

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def lose(self, every: int) -> None:
        """Swallow every so many-th piece of a reply and reset its connection; 0: none."""
        self._lose_every = every

    def forward(self, host: str, port: int) -> None:
        """Forward new connections to another server."""
        self._upstream = (host, port)

    def part(self) -> None:
        """Hold all bytes back, in both directions, until `heal`."""
        self._flowing.clear()

    def heal(self) -> None:
        """Forward again, first what was held back."""
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            upstream, server = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        pumps = (
            asyncio.ensure_future(self._pump(reader, server, replies=False)),
            asyncio.ensure_future(self._pump(upstream, writer, replies=True)),
        )
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            server.transport.abort()
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE):
                self.holding += 1
                await self._flowing.wait()
                self.holding -= 1
                if replies and self._loses():
                    return
                writer.write(data)
                await writer.drain()

    def _loses(self) -> bool:
        if not self._lose_every:
            return False
        self._replies += 1
        lost = self._replies % self._lose_every == 0
        self.lost += lost
        return lost
