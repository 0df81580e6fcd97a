"""Work without a client: the answers that this gateway writes into records."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

from services.gateway.http.holdings import Holdings


class Background:
    """The tasks of one gateway, by the keys of the records that they write. `close` it at the end."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._beginning: set[str] = set()

    @contextmanager
    def beginning(self, key: str) -> Iterator[None]:
        """Marks a record as being made, before its task exists."""
        self._beginning.add(key)
        try:
            yield
        finally:
            self._beginning.discard(key)

    def start(self, key: str, holdings: Holdings, work: Callable[[], Awaitable[None]]) -> None:
        """Run it in a task of its own, which takes over what the request holds and releases it at its end."""
        task = self._tasks[key] = asyncio.create_task(_own(holdings.hand_over(), work), name=f"background {key}")
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def writes(self, key: str) -> bool:
        """Whether a task of this gateway writes this record."""
        return key in self._tasks or key in self._beginning

    async def close(self) -> None:
        """End what still runs."""
        tasks = list(self._tasks.values())
        await asyncio.sleep(0)  # a task that is cancelled before its first step would release nothing
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _own(owned: AbstractAsyncContextManager[object], work: Callable[[], Awaitable[None]]) -> None:
    async with owned:
        await work()
