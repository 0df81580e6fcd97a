"""Clients on bare sockets: `python -m bench.gateway.client` starts them all and tells when each token came.

Bare, because a client library would take more of the cores than the gateway that is measured.
"""

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
import uvloop

from shared.settings import command_line

_TOKENS: Final = 1_000_000  # more than come while anybody reads
_START_SPACING_S: Final = 0.002  # a real crowd does not knock within one millisecond


class Arrivals(msgspec.Struct):
    """What one stream got: after each read the tokens so far and when it was (`time.monotonic_ns`)."""

    seed: int
    offsets: list[int] = []
    read_ns: list[int] = []
    frames: int = 0
    pings: int = 0


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Frame(msgspec.Struct):
    choices: list[_Choice] = []


_decoder = msgspec.json.Decoder(_Frame)


def body(seed: int, tokens: int, *, stream: bool = True) -> bytes:
    """A chat request whose number is its seed."""
    return msgspec.json.encode(
        {
            "model": "default",
            "messages": [{"role": "user", "content": "Tell me everything about rivers."}],
            "max_tokens": tokens,
            "seed": seed,
            "stream": stream,
        }
    )


def post(data: bytes) -> bytes:
    """The bytes of a request after which the server closes the connection."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + data


class Stream(asyncio.Protocol):
    """One streaming request. `flowing` is done with its first token, `ended` when the server has closed."""

    def __init__(self, seed: int, tokens: int) -> None:
        loop = asyncio.get_running_loop()
        self.arrivals = Arrivals(seed)
        self.flowing: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._request = post(body(seed, tokens))
        self._rest = b""
        self._offset = 0

    def connection_made(self, transport: Any) -> None:
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        before = self._offset
        # The gateway never cuts a frame in two HTTP chunks, so the sizes between frames can be skipped.
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            self._take(event)
        if self._offset > before:
            self.arrivals.offsets.append(self._offset)
            self.arrivals.read_ns.append(now)
            if not self.flowing.done():
                self.flowing.set_result(None)

    def _take(self, event: bytes) -> None:
        _, mark, value = event.partition(b"data: ")
        if not mark:
            self.arrivals.pings += b": ping" in event
        elif value != b"[DONE]":
            self.arrivals.frames += 1
            for choice in _decoder.decode(value).choices:
                self._offset += (choice.delta.content or "").count(" ")  # each token of the script has one

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class Stalled(Stream):
    """Asks and then reads nothing."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.pause_reading()


async def _all(port: int, streams: int, stalled: int, seconds: float, first: int) -> list[Arrivals]:
    loop = asyncio.get_running_loop()
    opened: list[tuple[Any, Stream]] = []
    for index in range(streams + stalled):
        make = partial(Stream if index < streams else Stalled, first + index, _TOKENS)
        opened.append(await loop.create_connection(make, "127.0.0.1", port))
        await asyncio.sleep(_START_SPACING_S)
    readers = [stream for _, stream in opened if not isinstance(stream, Stalled)]
    await asyncio.gather(*(reader.flowing for reader in readers))
    await asyncio.wait([reader.ended for reader in readers], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    early = sum(reader.ended.done() for reader in readers)
    for transport, _ in opened:
        transport.abort()
    if early:
        command_line.refuse(f"{early} streams ended early")
    return [reader.arrivals for reader in readers]


def main(
    port: Annotated[int, typer.Argument(help="Of the gateway, on this machine.")],
    output: Annotated[Path, typer.Argument(help="Where to put what came.")],
    streams: int = 300,
    stalled: Annotated[int, typer.Option(help="Clients besides that read nothing.")] = 0,
    seconds: Annotated[float, typer.Option(help="How long to read once all streams flow.")] = 15.0,
    first: Annotated[int, typer.Option(help="The seed of the first stream.")] = 1,
) -> None:
    """Run streams at once, and leave them all."""
    arrivals = uvloop.run(_all(port, streams, stalled, seconds, first))
    output.write_bytes(msgspec.json.encode(arrivals))


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.gateway.client")
