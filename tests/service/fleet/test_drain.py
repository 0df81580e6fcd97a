"""SIGTERM under load loses nothing, a second one ends at once, and whatever does not end in time is told why."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.messages import Chunk, DrafterCard, Finish, GatewayCard, Job
from tests.patience import HANG_S
from tests.ports import free_port
from tests.service.scripted import HI, MESSAGES, MODEL, Stack, Step, fixed, stack
from tests.service.verifier.test_verifier import ENDLESS, reference
from tests.stack import Processes, client, verifier
from tests.toy_loaded import toy

CROWD = 20
END = b"data: [DONE]\n\n"


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another process, or another task, does."""
    async with asyncio.timeout(HANG_S):
        while not await holds():  # noqa: ASYNC110 - other processes have no events
            await asyncio.sleep(0.01)


async def exit_code(process: "subprocess.Popen[bytes]", within_s: float) -> int:
    return await asyncio.to_thread(process.wait, within_s)


async def read(session: aiohttp.ClientSession, url: str, begun: asyncio.Semaphore) -> str:
    """A whole stream; `begun` is released at its first frame."""
    body = {"model": MODEL, "messages": MESSAGES, "stream": True}
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        assert response.status == 200
        first = await response.content.readuntil(b"\n\n")
        begun.release()
        return (first + await response.content.read()).decode()


async def listens(s: Stack, address: str) -> bool:
    return any(isinstance(one, GatewayCard) and one.url == address for one in await s.registry.list())


async def drains(s: Stack, address: str) -> bool:
    async with s.session.get(f"{address}/readyz") as response:
        return response.status == 503


async def admitted(s: Stack, count: int) -> bool:
    return await s.clients.redis.zcard(keys.admitted(MODEL)) == count


@asynccontextmanager
async def gateway(s: Stack, url: str) -> AsyncIterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A gateway as a process of its own, beside the stack's."""
    processes = Processes(url)
    address = f"http://127.0.0.1:{free_port()}"
    process = processes.start("gateway", "--port", address.rpartition(":")[2])
    try:
        await until(lambda: listens(s, address))
        yield address, process
    finally:
        processes.end()


async def test_a_gateway_that_is_asked_to_stop_ends_every_stream_that_runs(valkey_url: str, vocabulary: bytes) -> None:
    going = asyncio.Event()

    def script(_: Job) -> list[Step]:
        return [Chunk(tokens=(HI,)), going, Chunk(tokens=(HI,) * 3, finish=Finish.LENGTH)]

    async with stack(valkey_url, vocabulary, script) as s, gateway(s, valkey_url) as (address, process):
        begun = asyncio.Semaphore(0)
        streams = [asyncio.create_task(read(s.session, address, begun)) for _ in range(CROWD)]
        for _ in range(CROWD):
            await begun.acquire()
        process.send_signal(signal.SIGTERM)
        await until(lambda: drains(s, address))
        going.set()
        for text in await asyncio.gather(*streams):
            assert text.count('"content":"Hi') + text.count('"content":"HiHiHi') >= 2
            assert text.endswith(END.decode())
            assert '"error"' not in text
        assert await exit_code(process, 10) == 0


async def test_a_second_signal_ends_at_once(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, fixed(asyncio.Event())) as s, gateway(s, valkey_url) as (address, process):
        begun = asyncio.Semaphore(0)
        stream = asyncio.create_task(read(s.session, address, begun))
        await begun.acquire()
        process.send_signal(signal.SIGTERM)
        await until(lambda: drains(s, address))
        assert not stream.done()
        process.send_signal(signal.SIGTERM)
        assert await exit_code(process, 5) == 1
        with pytest.raises(aiohttp.ClientError):
            await stream


async def test_what_does_not_end_in_time_is_told_why(valkey_url: str, vocabulary: bytes) -> None:
    async with stack(valkey_url, vocabulary, fixed(asyncio.Event()), max_requests=CROWD + 1, drain=0.05) as s:
        begun = asyncio.Semaphore(0)
        streams = [asyncio.create_task(read(s.session, s.url, begun)) for _ in range(CROWD)]
        whole = asyncio.create_task(s.post())
        for _ in range(CROWD):
            await begun.acquire()
        await until(lambda: admitted(s, CROWD + 1))
        s.stop.set()
        for text in await asyncio.gather(*streams):
            assert '"code":"draining"' in text
            assert text.endswith(END.decode())
        status, body = await whole
        assert (status, body["error"]["code"]) == (503, "draining")
        async with asyncio.timeout(HANG_S):
            await s.stopped.wait()


async def test_a_drafter_that_is_asked_to_stop_costs_no_token(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    processes = Processes(valkey_url)
    try:
        async with (
            verifier(valkey_url, toy(model_path, sequences=4)),
            client(valkey_url, model_path) as one,
        ):
            process = processes.start("drafter", "--name", "drafter-lookup")
            await one.cards(2)
            prompts = [[5, 6, 7 + index] * 8 for index in range(8)]
            asking = [asyncio.create_task(one.ask(one.job(prompt, ENDLESS, 400))) for prompt in prompts]
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            process.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*asking)
            assert [answer.tokens for answer in answers] == [reference(one, prompt, 400) for prompt in prompts]
            assert await exit_code(process, 10) == 0
            assert not any(isinstance(card, DrafterCard) for card in await one.registry.list())
    finally:
        processes.end()
