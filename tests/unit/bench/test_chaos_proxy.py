"""The proxy that loses replies: the server did what it was asked, and who asked sees a broken connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.chaos.proxy import Proxy
from tests.ports import free_port


class Echo:
    """Answers every line with itself and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.asked.append(line)
            writer.write(line)
        writer.close()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield echo, proxy
    server.close()


async def ask(proxy: Proxy, *lines: bytes) -> list[bytes]:
    """The replies up to the first one that is lost."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    replies = []
    try:
        for line in lines:
            writer.write(line)
            reply = await reader.readline()
            if not reply:
                break
            replies.append(reply)
    except ConnectionError:
        pass
    writer.transport.abort()
    return replies


async def test_it_forwards() -> None:
    async with proxied() as (echo, proxy):
        assert await ask(proxy, b"a\n", b"b\n") == [b"a\n", b"b\n"]
        assert echo.asked == [b"a\n", b"b\n"]


async def test_a_lost_reply_was_a_request_that_was_carried_out() -> None:
    async with proxied() as (echo, proxy):
        proxy.lose(every=3)
        assert await ask(proxy, b"a\n", b"b\n", b"c\n", b"d\n") == [b"a\n", b"b\n"]
        assert (echo.asked, proxy.lost) == ([b"a\n", b"b\n", b"c\n"], 1)
        proxy.lose(every=0)
        assert await ask(proxy, b"e\n") == [b"e\n"]


async def test_what_a_parted_side_sent_arrives_when_it_heals() -> None:
    async with proxied() as (echo, proxy):
        proxy.part()
        asking = asyncio.create_task(ask(proxy, b"a\n"))
        while not proxy.holding:  # noqa: ASYNC110 - until the bytes have come to the proxy
            await asyncio.sleep(0)
        assert (echo.asked, asking.done()) == ([], False)
        proxy.heal()
        assert await asking == [b"a\n"]


async def test_a_server_that_is_not_there_is_a_broken_connection() -> None:
    async with Proxy("127.0.0.1", free_port()) as proxy:
        assert await ask(proxy, b"a\n") == []
