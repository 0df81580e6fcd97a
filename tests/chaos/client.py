"""Clients that ask one question after the other over HTTP and write down what they get."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp

from tests.chaos.questions import Question
from tests.chaos.records import Ending, Request

STUCK_S: Final = 90.0  # a request takes seconds, and the longest recovery some ten
_LEAVES: Final = 0.05  # the share of requests whose client goes away before the end
_PAUSE_S: Final = 0.25  # after a refusal


class Clients:
    """So many clients at once; each one's choices depend on the seed and its number alone."""

    def __init__(self, gateways: Mapping[str, str], questions: Sequence[Question], count: int, seed: int) -> None:
        """`gateways` are addresses by name."""
        self.requests: list[Request] = []
        self._gateways = gateways
        self._questions = questions
        self._sources = [random.Random(f"{seed}-{number}") for number in range(count)]
        self._stopping = False

    async def run(self) -> None:
        """Ask until `stop`; returns when the last request has ended."""
        timeout = aiohttp.ClientTimeout(total=STUCK_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(self._ask_on(session, source))

    def stop(self) -> None:
        """Ask nothing further."""
        self._stopping = True

    async def _ask_on(self, session: aiohttp.ClientSession, source: random.Random) -> None:
        clock = asyncio.get_running_loop().time
        while not self._stopping:
            request = Request(
                question=source.randrange(len(self._questions)),
                gateway=source.choice(sorted(self._gateways)),
                began=clock(),
            )
            question = self._questions[request.question]
            leaves_after = source.randint(0, question.max_tokens) if source.random() < _LEAVES else None
            self.requests.append(request)
            request.ending = await self._ask(session, request, question, leaves_after)
            request.ended = clock()
            if request.ending in (Ending.REFUSED, Ending.UNREACHABLE):
                await asyncio.sleep(_PAUSE_S * (1 + source.random()))

    async def _ask(
        self, session: aiohttp.ClientSession, request: Request, question: Question, leaves_after: int | None
    ) -> Ending:
        url = f"{self._gateways[request.gateway]}/v1/chat/completions"
        try:
            async with session.post(url, json=question.body()) as response:
                request.status = response.status
                if response.status != 200:
                    request.retry_after = "Retry-After" in response.headers
                    return Ending.REFUSED
                return await _read(response, request, leaves_after)
        except TimeoutError:
            return Ending.STUCK
        except aiohttp.ClientError:
            return Ending.CUT if request.status else Ending.UNREACHABLE


async def _read(response: aiohttp.ClientResponse, request: Request, leaves_after: int | None) -> Ending:
    """All frames. Raises aiohttp's errors where the connection breaks."""
    clock = asyncio.get_running_loop().time
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        request.after_end += request.marks > 0
        if line == b"data: [DONE]\n":
            request.marks += 1
            continue
        _take(json.loads(line[6:]), request, clock())
        if leaves_after is not None and len(request.tokens) >= leaves_after:
            response.close()
            return Ending.LEFT
    if not request.marks:
        return Ending.CUT
    return Ending.FAILED if request.errors else Ending.FINISHED


def _take(frame: dict[str, Any], request: Request, now: float) -> None:
    if "error" in frame:
        request.errors.append(frame["error"]["code"])
    for choice in frame.get("choices", ()):
        tokens = choice.get("token_ids") or []
        if tokens:
            request.tokens += tokens
            request.arrivals.append(now)
        if choice["finish_reason"] is not None:
            request.finishes.append(choice["finish_reason"])
