"""Sends the plan's turns to the servers one after the other and keeps the answers and failures."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import aiohttp

from services.launcher.bench.client import WHOLE_DISTRIBUTION, ask
from services.launcher.bench.plan import PlannedRequest, PlannedTurn, order
from services.launcher.bench.samples import AnswerSample, Failure, Load, Measurements, TimedAnswer
from services.launcher.bench.servers import Server
from services.launcher.clients.streaming import AnswerError
from shared.errors import StartError

_UNKNOWN_FIELD: Final = (400, 422)


class Runner:
    """One run over all servers."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        servers: Sequence[Server],
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`step` is called with the server's name after each request."""
        self.measured = Measurements()
        self.cut: list[str] = []  # servers that accept no top_k and min_p, so their own hold
        self._http, self._servers, self._step = http, servers, step
        self._extras: dict[str, dict[str, Any]] = {
            server.name: {**WHOLE_DISTRIBUTION, **_own(server)} for server in servers
        }

    async def warm_up(self, turn: PlannedTurn) -> None:
        """Let every server answer once, uncounted. Raises `StartError` for one that cannot."""
        for server in self._servers:
            try:
                await self._probe(server, turn.conversations[0][0])
                await asyncio.gather(*(self._ask(server, one[0]) for one in turn.conversations[1:]))
            except AnswerError as error:
                raise StartError("server", server.name, f"cannot answer: {error}") from None

    async def run(self, turns: Sequence[PlannedTurn]) -> None:
        """Run all turns; the figures so far stay in `measured` if this is cancelled."""
        for turn in turns:
            for index in order(range(len(self._servers)), turn.repetition):
                await self._turn(self._servers[index], turn)

    async def _probe(self, server: Server, request: PlannedRequest) -> None:
        try:
            await self._ask(server, request)
        except AnswerError as error:
            if error.status not in _UNKNOWN_FIELD:
                raise
            self._extras[server.name] = _own(server)
            await self._ask(server, request)
            self.cut.append(server.name)

    async def _turn(self, server: Server, turn: PlannedTurn) -> None:
        begin = time.perf_counter()
        counts = await asyncio.gather(
            *(self._conversation(server, turn, index) for index in range(len(turn.conversations)))
        )
        seconds = time.perf_counter() - begin
        if None not in counts:
            tokens = sum(count for count in counts if count is not None)
            self.measured.loads.append(
                Load(server=server.name, cell=turn.cell, repetition=turn.repetition, tokens=tokens, seconds=seconds)
            )

    async def _conversation(self, server: Server, turn: PlannedTurn, index: int) -> int | None:
        """Its requests in order; returns their tokens, or None if one failed, which does not stop the others."""
        tokens: int | None = 0
        where: dict[str, Any] = {"server": server.name, "cell": turn.cell, "repetition": turn.repetition}
        for request in turn.conversations[index]:
            try:
                reply = await self._ask(server, request)
            except AnswerError as error:
                self.measured.failures.append(Failure(**where, message=str(error)))
                tokens = None
            else:
                tokens = None if tokens is None else tokens + reply.tokens
                self.measured.samples.append(
                    AnswerSample(
                        **where,
                        index=index,
                        step=request.step,
                        prompt=request.prompt,
                        seed=request.seed,
                        reply=reply,
                    )
                )
            self._step(server.name)
        return tokens

    async def _ask(self, server: Server, request: PlannedRequest) -> TimedAnswer:
        return await ask(self._http, server, request, self._extras[server.name])


def _own(server: Server) -> dict[str, Any]:
    """Fields that only draftmesh knows."""
    return {"speculative": False} if server.plain else {}
