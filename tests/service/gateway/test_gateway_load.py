"""Many streams at once, and clients that take little or nothing: nobody waits for them and nothing is left behind."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
from aiohttp import web

from services.gateway.http.sse import EventStream, frame
from shared.wire import keys
from shared.wire.messages import Chunk, Finish, Job
from tests.patience import HANG_S
from tests.service.scripted import HI, MESSAGES, MODEL, Step, fixed, stack

CROWD = 300
PINGS = 2


async def _two_pings(session: aiohttp.ClientSession, url: str) -> None:
    async with session.post(f"{url}/v1/chat/completions", json={"messages": MESSAGES, "stream": True}) as response:
        assert response.status == 200
        for _ in range(PINGS):
            assert (await response.content.readuntil(b": ping\n\n")).endswith(b": ping\n\n")


async def test_300_silent_streams_are_kept_awake_and_leave_nothing(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(
        valkey_url, vocabulary, fixed(asyncio.Event()), max_requests=CROWD, max_live_tokens=10**9, heartbeat_s=0.5
    ) as s:
        status, _ = await s.post(max_tokens=-5)
        assert status == 400  # refused, but whatever the gateway makes only once is made now
        before = asyncio.all_tasks()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            for _ in range(CROWD):
                group.create_task(_two_pings(session, s.url))
        async with asyncio.timeout(HANG_S):
            while left := asyncio.all_tasks() - before:
                await asyncio.wait(left)
        assert await cast(Any, s.clients.redis).zcard(keys.admitted(MODEL)) == 0


async def _ask_and_read_nothing(url: str, **fields: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose buffers on this side are as small as can be."""
    host, _, port = url.removeprefix("http://").partition(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=client, limit=1024)
    body = json.dumps({"messages": MESSAGES, "stream": True, **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    return reader, writer


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(1 << 16):
        yield data


async def test_a_client_that_stalls_keeps_nobody_waiting_and_misses_nothing(valkey_url: str, vocabulary: bytes) -> None:
    commits, width = 600, 100  # more commits than are kept for a reader, and more bytes than sockets buffer
    steps: list[Step] = [Chunk(tokens=(HI,) * width) for _ in range(commits)]
    claimed = asyncio.Event()

    def script(_: Job) -> list[Step]:
        claimed.set()
        return [*steps, Chunk(tokens=(), finish=Finish.LENGTH)]

    async with stack(valkey_url, vocabulary, script) as s:
        reader, writer = await _ask_and_read_nothing(s.url, speculative_trace=True)
        await claimed.wait()
        status, answer = await s.post()
        assert (status, answer["usage"]["completion_tokens"]) == (200, commits * width)
        received = b"".join([data async for data in _chunks(reader)])
        assert received.count(b'"token":') == commits * width
        writer.close()


async def test_a_client_that_stalls_for_too_long_is_dropped() -> None:
    ended = asyncio.Event()

    async def pour(request: web.Request) -> web.StreamResponse:
        stream = EventStream(request, "text/event-stream", write_timeout_s=0.05)
        await stream.open()
        try:
            while True:
                await stream.send([frame("x" * 100_000)])
        finally:
            ended.set()

    app = web.Application()
    app.router.add_post("/v1/chat/completions", pour)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    _, writer = await _ask_and_read_nothing(f"http://{host}:{port}")
    async with asyncio.timeout(HANG_S):
        await ended.wait()
    writer.close()
    await runner.cleanup()
