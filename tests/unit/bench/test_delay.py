"""The delaying proxy: every byte arrives, in order, and not before its time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.delay import DelayingProxy
from tests.patience import HANG_S


class Line:
    """A clock that stands still and sleeps that last until the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self._waiting: list[tuple[float, asyncio.Event]] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self._waiting.append((self.now + seconds, over))
        self.asked.put_nowait(seconds)
        await over.wait()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for due, over in self._waiting:
            if due <= self.now + 1e-9:
                over.set()


@asynccontextmanager
async def echo(answer: bytes = b"") -> AsyncIterator[tuple[int, asyncio.Queue[bytes]]]:
    """A server that keeps what it reads, and answers each read with `answer` or the same bytes."""
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            seen.put_nowait(data)
            writer.write(answer or data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()


async def test_each_direction_takes_half_of_the_round_trip() -> None:
    line = Line()
    async with (
        asyncio.timeout(HANG_S),
        echo() as (port, seen),
        DelayingProxy(port, 60.0, clock=line.clock, sleep=line.sleep) as proxy,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"question")
        assert await line.asked.get() == 0.030
        assert seen.empty()
        line.advance(0.030)
        assert await seen.get() == b"question"
        assert await line.asked.get() == 0.030
        line.advance(0.030)
        assert await reader.readexactly(8) == b"question"
        writer.close()


async def test_bytes_arrive_in_order_whatever_the_delay_becomes() -> None:
    sent = b"".join(number.to_bytes(4, "big") for number in range(60_000))

    async def at_once(seconds: float) -> None:
        await asyncio.sleep(0)

    async with asyncio.timeout(HANG_S), echo() as (port, _), DelayingProxy(port, 20.0, sleep=at_once) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        received = asyncio.ensure_future(reader.readexactly(len(sent)))
        for start in range(0, len(sent), 10_000):
            proxy.round_trip_ms = start % 7
            writer.write(sent[start : start + 10_000])
            await writer.drain()
        assert await received == sent
        writer.write_eof()
        assert await reader.read() == b""  # the end of one direction ends the other, behind everything else
        writer.close()


async def test_without_delay_nothing_sleeps_and_closing_breaks_connections() -> None:
    line = Line()
    async with asyncio.timeout(HANG_S), echo() as (port, seen):
        async with DelayingProxy(port, clock=line.clock, sleep=line.sleep) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"x")
            assert await seen.get() == b"x"
            assert await reader.readexactly(1) == b"x"
            assert line.asked.empty()
        assert await reader.read() == b""
        writer.close()
