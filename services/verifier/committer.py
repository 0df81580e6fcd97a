"""Sends the results of rounds to Redis, in order, while the next decode runs; learns what was cancelled or lost.

No commit is dropped while Redis is away. The committer retries a batch until Redis accepts it, which is safe because
commits are idempotent. After a few rounds the queue is full, and decoding stops until Redis is back.

A round's hints go out before its commits, because drafters wait for them and nothing depends on them. If a verifier
dies in between, drafters know tokens that no log has. The next verifier has another epoch, for which they begin anew.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from services.verifier.generation import Generation
from shared.wire import drafts
from shared.wire.broker import DISCONNECTED, Reconnect
from shared.wire.commands import Redis
from shared.wire.jobs import Append, JobStore, Renewal
from shared.wire.messages import Hint
from shared.wire.scripts import ScriptOutcome

logger = structlog.get_logger()

_BACKLOG_ROUNDS = 4


@dataclass(slots=True)
class Batch:
    appends: list[tuple[Generation, Append]] = field(default_factory=list)
    renewals: list[tuple[Generation, Renewal]] = field(default_factory=list)
    hints: list[tuple[str, Hint]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)  # ids of requests whose last commits are among the appends

    def __bool__(self) -> bool:
        return bool(self.appends or self.renewals or self.hints)


class Committer:
    """`put` queues a batch; `run` sends it.

    `on_lost` is called for every request that must not continue, and `on_ended` for every request whose last commit
    Redis has answered.
    """

    def __init__(
        self,
        redis: Redis,
        store: JobStore,
        on_lost: Callable[[Generation, ScriptOutcome], None],
        on_ended: Callable[[str], None],
    ) -> None:
        self._redis = redis
        self._store = store
        self._on_lost = on_lost
        self._on_ended = on_ended
        self._queue: asyncio.Queue[Batch] = asyncio.Queue(_BACKLOG_ROUNDS)

    async def put(self, batch: Batch) -> None:
        """Queue a round's messages; waits while the queue is full."""
        if batch:
            await self._queue.put(batch)

    async def flush(self) -> None:
        """Wait until everything queued has been answered."""
        await self._queue.join()

    async def run(self) -> None:
        reconnect = Reconnect("committer")
        while True:
            batch = await self._queue.get()
            with suppress(*DISCONNECTED):  # hints are out of date by the time Redis is back
                await drafts.send(self._redis, batch.hints)
            while True:
                try:
                    outcomes = await self._store.commit(
                        [append for _, append in batch.appends], [renewal for _, renewal in batch.renewals]
                    )
                    break
                except DISCONNECTED as error:
                    await reconnect.failed(error)
            reconnect.succeeded()
            generations = [generation for generation, _ in (*batch.appends, *batch.renewals)]
            for generation, outcome in zip(generations, outcomes, strict=True):
                if outcome not in (ScriptOutcome.OK, ScriptOutcome.DUPLICATE):
                    if outcome is ScriptOutcome.GAP:
                        logger.error("commit_gap", request=generation.job.request_id, offset=generation.offset)
                    self._on_lost(generation, outcome)
            for request_id in batch.ended:
                self._on_ended(request_id)
            self._queue.task_done()
