"""A scripted stack on a thread of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from shared.fleet.registry import HEARTBEAT_S
from tests.service.scripted import Script, card, stack


@contextmanager
def hosted(url: str, vocabulary: bytes, script: Script) -> Iterator[str]:
    """The gateway's address for as long as the block lasts."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        end = asyncio.Event()
        async with stack(url, vocabulary, script) as s:
            started.set_result((s.url, asyncio.get_running_loop(), end))
            while not end.is_set():
                await s.registry.beat(card())  # or the verifier would be taken for dead
                with suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),), name="gateway", daemon=True)
    thread.start()
    address, loop, end = started.result(30)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(30)
