"""A crowd at one gateway and one verifier: whoever leaves, in whatever phase, leaves nothing behind."""

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from services.gateway.service import GatewaySettings, serve
from shared.model import model_source
from shared.settings.gateway_options import GatewayOptions
from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.jobs import JobStore
from tests.patience import HANG_S, PROCESS_S
from tests.stack import client, verifier
from tests.toy_loaded import toy
from tests.toys import EOG

pytestmark = pytest.mark.timeout(600)

RUNNING, QUEUED, LEAVES = 50, 500, 1000


class Visitor:
    """One streaming request on a connection of its own, and three ways to leave."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self._reader = reader
        self._writer = writer
        body = {"prompt": [5, 6, 2 + number % 60], "max_tokens": 590, "stream": True, "logit_bias": {str(EOG): -100}}
        data = json.dumps(body).encode()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)

    async def headed(self) -> None:
        """Admitted: the status has come."""
        assert b"200" in await self._reader.readline()

    async def flowing(self) -> None:
        """A token has come."""
        await self._reader.readuntil(b"data: ")

    def leave(self, how: str) -> None:
        if how == "half-close":
            self._writer.write_eof()  # and read no more: the transport goes when the gateway closes
        elif how == "close":
            self._writer.close()
        else:
            self._writer.transport.abort()

    def gone(self) -> None:
        self._writer.transport.abort()


class Place:
    """Where visitors go, and what lies behind it."""

    def __init__(self, url: str, redis: Broker, model: str) -> None:
        self._address = urlsplit(url)
        self._redis = cast(Any, redis.redis)
        self._jobs = keys.jobs(model)
        self.store = JobStore(redis.redis, redis.blocking, model)
        self._visitors: list[Visitor] = []

    async def visitor(self) -> Visitor:
        streams = await asyncio.open_connection(self._address.hostname, self._address.port)
        self._visitors.append(Visitor(*streams, len(self._visitors) + 1))
        return self._visitors[-1]

    def close(self) -> None:
        """No visitor of a test that failed is left to the next one."""
        for visitor in self._visitors:
            visitor.gone()

    async def counts(self) -> tuple[int, ...]:
        """Jobs that the verifier was given, that are admitted, and that are in the stream; those that ended are not."""
        given = (await self._redis.xpending(self._jobs, keys.GROUP))["pending"]
        return int(given), len(await self.store.live()), int(await self._redis.xlen(self._jobs))


@asynccontextmanager
async def place(url: str, path: Path, redis: Broker) -> AsyncIterator[Place]:
    """A gateway, and a verifier with fifty slots whose rounds take 20 ms."""
    pause = threading.Event()
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    target = toy(path, lambda rows: pause.wait(0.02), sequences=RUNNING, max_rows=512)
    settings = GatewaySettings(
        GatewayOptions(
            redis=url, host="127.0.0.1", port=0, max_requests=2000, request_timeout=600, max_live_tokens=10**9
        )
    )
    async with verifier(url, target), client(url, path) as one:
        gateway = asyncio.create_task(serve(settings, stop, started))
        address = await started
        await one.cards(2)
        there = Place(address, redis, model_source.model_name(path))
        try:
            yield there
        finally:
            there.close()
            stop.set()
            await gateway


async def settle(there: Place, running: int, queued: int, within_s: float) -> None:
    """Until so many requests run and wait."""
    in_stream = running + min(queued, 1)  # of each caller only the first, and all of these are one
    wanted = (running, running + queued, in_stream)
    counts: tuple[int, ...] = ()
    try:
        async with asyncio.timeout(within_s):
            while (counts := await there.counts()) != wanted:  # noqa: ASYNC110 - the world outside changes
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"given, admitted and in the stream: {counts} instead of {wanted}")


async def test_a_thousand_that_leave_at_random_leave_nothing_behind(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    source = random.Random(11)
    async with place(valkey_url, model_path, valkey) as there:
        before = len(asyncio.all_tasks())
        present: list[Visitor] = []
        while len(present) < RUNNING + QUEUED:  # fifty at a time: on a busy machine more at once would be refused
            present += [await there.visitor() for _ in range(RUNNING)]
            await settle(there, RUNNING, len(present) - RUNNING, within_s=PROCESS_S)
        left: list[Visitor] = []

        def leave() -> None:
            visitor = present.pop(source.randrange(len(present)))
            visitor.leave(source.choice(("abort", "close", "half-close")))
            left.append(visitor)

        while len(left) < LEAVES - RUNNING - QUEUED:
            leave()
            present.append(await there.visitor())
            phase = source.random()
            if phase < 0.1:
                await present[-1].headed()
            elif phase < 0.2:
                await asyncio.sleep(0)
        while present:
            leave()
        assert len(left) == LEAVES
        began = asyncio.get_running_loop().time()
        await settle(there, 0, 0, within_s=HANG_S)
        print(f"all places free after {asyncio.get_running_loop().time() - began:.2f} s")
        for visitor in left:
            visitor.gone()
        async with asyncio.timeout(HANG_S):
            while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - nobody tells when a task ends
                await asyncio.sleep(0.01)
        after = [await there.visitor() for _ in range(RUNNING)]
        async with asyncio.timeout(HANG_S):
            await asyncio.gather(*(visitor.flowing() for visitor in after))
        for visitor in after:
            visitor.gone()
        await settle(there, 0, 0, within_s=HANG_S)
