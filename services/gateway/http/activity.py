"""How many requests run here, and whether new ones are still taken."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from services.gateway.errors import draining


class Activity:
    """Counts running requests; once draining, refuses new ones and tells when the last has ended."""

    def __init__(self) -> None:
        self.running = 0
        self.draining = False
        self._present = 0  # running requests, and everything else for which draining waits
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Hold a place while a request runs. Raises a 503 `ApiError` while draining."""
        if self.draining:
            raise draining()
        self.running += 1
        try:
            with self.stay():
                yield
        finally:
            self.running -= 1

    @contextmanager
    def stay(self) -> Iterator[None]:
        """Let draining wait for this, though it is no request: a reader of what another request generates."""
        self._present += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._present -= 1
            if not self._present:
                self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests and wait up to `timeout_s` for the running ones."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
