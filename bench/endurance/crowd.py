"""Clients that send mixed requests to a private fleet, one after the other."""

import time
from collections import Counter

import aiohttp

from bench.endurance.requests import Request, draw
from services.launcher.fleet.stack import StackError


class Crowd:
    """Asks the numbered requests; `asked` counts them by kind."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._next = 0
        self.asked: Counter[str] = Counter()

    async def ask(self, until_s: float) -> None:
        """One client: ask until this moment of `time.monotonic`. Raises `StackError` at an unexpected answer."""
        while time.monotonic() < until_s:
            self._next += 1
            request = draw(self._next)
            await self._one(request)
            self.asked[request.kind] += 1

    async def _one(self, request: Request) -> None:
        async with self._http.post(request.path, json=request.body) as response:
            if (response.status == 200) == request.wrong or response.status >= 500:
                raise StackError(f"a {request.kind} request was answered with {response.status}")
            if request.left:
                await response.content.readany()
                response.close()
            else:
                await response.read()
