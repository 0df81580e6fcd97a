"""A client that leaves, in whatever phase, costs the verifier at most the decode that runs and one more."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from services.gateway.service import GatewaySettings, serve
from services.verifier.load import LoadedTarget
from shared.settings.gateway_options import GatewayOptions
from shared.wire.broker import Broker
from shared.wire.messages import Finish
from shared.wire.reading import parse_entry
from tests.patience import HANG_S
from tests.service.verifier.test_verifier import until
from tests.stack import client, verifier
from tests.toy_loaded import toy
from tests.toys import EOG, VOCABULARY

ENDLESS: dict[str, Any] = {"max_tokens": 80, "logit_bias": {str(EOG): -100}, "speculative": False}
SHORT, LONG = [5, 6, 7], [2 + index % (VOCABULARY - 2) for index in range(400)]


@dataclass
class Gate:
    """Lets a toy target's decodes run one by one."""

    open: threading.Event = field(default_factory=threading.Event)
    permits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    started: int = 0

    def __call__(self, rows: int) -> None:
        self.started += 1
        while not self.open.is_set() and not self.permits.acquire(timeout=0.05):
            pass


@asynccontextmanager
async def service(url: str, path: Path, gate: Gate, sequences: int) -> AsyncIterator[str]:
    """A gateway and a verifier whose target waits for the gate; yields the gateway's address."""
    target: LoadedTarget = toy(path, gate, sequences=sequences)
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    settings = GatewaySettings(
        GatewayOptions(redis=url, host="127.0.0.1", port=0, max_requests=8, request_timeout=60.0)
    )
    async with verifier(url, target), client(url, path) as one, asyncio.TaskGroup() as group:
        await one.cards(1)
        group.create_task(serve(settings, stop, started))
        try:
            yield await started
        finally:
            gate.open.set()
            stop.set()


async def logs(broker: Broker) -> dict[str, Finish]:
    """How each request's log ends."""
    redis: Any = broker.redis
    found = {}
    for key in [key async for key in redis.scan_iter("draftmesh:{*}:log")]:
        entries = await redis.xrange(key)
        found[key.decode()] = parse_entry(*entries[-1])[1].finish
    return found


async def cancelled(broker: Broker, count: int = 1) -> None:
    """Wait until that many requests are cancelled in Redis."""
    async with asyncio.timeout(HANG_S):
        while list((await logs(broker)).values()).count(Finish.CANCELLED) < count:  # noqa: ASYNC110 - Redis has no event
            await asyncio.sleep(0.005)


async def jobs(broker: Broker, count: int) -> None:
    """Wait until that many requests are in Redis."""
    redis: Any = broker.redis
    async with asyncio.timeout(HANG_S):
        while len([key async for key in redis.scan_iter("draftmesh:{*}:job")]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def ask(session: aiohttp.ClientSession, url: str, prompt: list[int], stream: bool) -> "asyncio.Task[Any]":
    async def post() -> str:
        body = {"prompt": prompt, "stream": stream, **ENDLESS}
        async with session.post(f"{url}/v1/completions", json=body) as response:
            return await response.text()

    return asyncio.create_task(post())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("prompt", "decodes"), [(LONG, 2), (SHORT, 4)])
async def test_one_that_is_read_or_answered_stops_within_a_round(
    valkey: Broker, valkey_url: str, model_path: Path, prompt: list[int], decodes: int, stream: bool
) -> None:
    gate = Gate()
    async with service(valkey_url, model_path, gate, 2) as url, aiohttp.ClientSession() as session:
        task = ask(session, url, prompt, stream)
        for _ in range(decodes):
            gate.permits.release()
        await until(lambda: gate.started == decodes + 1)  # the last one runs, and waits
        with capture_logs() as said:
            task.cancel()
            await cancelled(valkey)
            gate.permits.release()
            await until(lambda: any(line["event"] == "request_lost" for line in said))
        assert gate.started <= decodes + 2
        stopped = gate.started
        gate.open.set()
        assert '"finish_reason"' in await ask(session, url, [9, 8], False)
        # One decode reads the other's prompt and gives a token; one more may run before the cancelled one is seen.
        assert gate.started - stopped in (80, 81)


async def test_one_that_waits_for_a_place_is_never_decoded(valkey: Broker, valkey_url: str, model_path: Path) -> None:
    gate = Gate()
    async with service(valkey_url, model_path, gate, 1) as url, aiohttp.ClientSession() as session:
        running = ask(session, url, SHORT, False)
        await until(lambda: gate.started == 1)
        waiting = [ask(session, url, LONG, stream) for stream in (True, False)]
        await jobs(valkey, 3)
        for task in waiting:
            task.cancel()
        await cancelled(valkey, 2)
        gate.open.set()
        assert '"finish_reason"' in await running
        assert gate.started == 80
