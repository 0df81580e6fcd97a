"""Whatever answers in Redis's place, commands that look at a fleet end with one line."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from services.launcher.facts import fleet_reader
from services.launcher.facts.fleet_reader import read_cards
from shared.wire.broker import BrokerError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[str]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        yield f"redis://:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(64)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def forbidding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Lets anyone in and nobody read."""
    while data := await reader.read(4096):
        for command in (b"AUTH", b"SELECT", b"CLIENT", b"PING", b"SMEMBERS", b"SRANDMEMBER"):
            for _ in range(data.count(command + b"\r\n")):
                writer.write(b"-NOPERM no permissions\r\n" if b"MEMBER" in command else b"+OK\r\n")
    writer.close()


@pytest.mark.parametrize(
    ("handler", "said"), [(silent, "no answer within"), (web, "no answer"), (forbidding, "cannot be read")]
)
async def test_it_is_one_line_without_the_password(
    handler: Handler, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_reader, "_TIMEOUT_S", 1.0)
    async with listening(handler) as url:
        with pytest.raises(BrokerError, match=said) as caught:
            await read_cards(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
