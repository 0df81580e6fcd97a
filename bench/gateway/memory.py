"""How much a gateway grows over many short requests of every kind."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp

from bench.gateway.client import body
from bench.processes import memory
from services.launcher.fleet.stack import StackError

WARM_UP: Final = 1000  # requests after which pools, caches and the allocator have found their size
_AT_ONCE: Final = 48
_TOKENS: Final = 16
_SAMPLES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Resident bytes of the gateway: after the warm-up, then after every tenth of the requests."""

    warm: int
    after: tuple[int, ...]
    requests: int
    left: int  # requests whose client went away in the middle

    @property
    def share(self) -> float:
        """By how much the last is more than the first."""
        return self.after[-1] / self.warm - 1


class Crowd:
    """Short requests, half of them streamed, one in ten left after its first bytes."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._number = 0
        self.left = 0

    async def ask(self, requests: int) -> None:
        """Send this many, some at once. Raises `StackError` if one is refused."""
        end = self._number + requests
        connector = aiohttp.TCPConnector(limit=_AT_ONCE)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._ask_until(session, end))

    async def _ask_until(self, session: aiohttp.ClientSession, end: int) -> None:
        while self._number < end:
            self._number += 1
            await self._one(session, self._number)

    async def _one(self, session: aiohttp.ClientSession, number: int) -> None:
        streamed = number % 2 == 0
        data = body(number, _TOKENS, stream=streamed)
        async with session.post(self._url, data=data, headers={"Content-Type": "application/json"}) as response:
            if response.status != 200:
                raise StackError(f"a request was answered with {response.status}")
            if number % 10 == 0:
                await response.content.readany()
                response.close()
                self.left += 1
            else:
                await response.read()


async def grow(url: str, pid: int, requests: int, tell: Callable[[str], object]) -> Growth:
    """Measure the gateway `pid` at `url`."""
    crowd = Crowd(url)
    await crowd.ask(WARM_UP)
    warm, after = memory(pid)["rss"], []
    crowd.left = 0
    for part in range(_SAMPLES):
        tell(f"memory: {part * requests // _SAMPLES} requests")
        await crowd.ask(requests // _SAMPLES)
        after.append(memory(pid)["rss"])
    return Growth(warm=warm, after=tuple(after), requests=requests, left=crowd.left)
