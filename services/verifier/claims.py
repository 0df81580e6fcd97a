"""Claims jobs while there are free slots: new jobs at once, and a dead verifier's jobs when their leases end."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from services.verifier.constraint import Constraint
from shared.law.grammar import GrammarError
from shared.wire import codec
from shared.wire.broker import BLOCK_MS, DISCONNECTED, Reconnect
from shared.wire.commands import Redis
from shared.wire.jobs import Claim, JobStore
from shared.wire.messages import Job
from shared.wire.reading import read_log
from shared.wire.scripts import ScriptOutcome

logger = structlog.get_logger()

ORPHAN_CHECK_S: Final = 2.0


Constrain = Callable[[Job, Sequence[int]], Constraint | None]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed job, the tokens that earlier claims committed, and its constraint or why that cannot be used."""

    claim: Claim
    output: list[int]
    constraint: Constraint | None = None
    refusal: str = ""
    at_ns: int = 0  # time of the claim, by this machine's clock


class Claims:
    """Claimed jobs that wait for the round loop. Each has a slot reserved."""

    def __init__(
        self,
        redis: Redis,
        store: JobStore,
        instance: str,
        slots: int,
        arrived: Callable[[], None],
        constrain: Constrain = lambda job, output: None,
        gave_up: Callable[[], object] = lambda: None,
    ) -> None:
        """`constrain` runs in another thread, because it may take long; `run_constraints` must run for it.

        `gave_up` is called for each job given up.
        """
        self._redis = redis
        self._store = store
        self._instance = instance
        self._held: set[str] = set()  # in slots
        self._ending: set[str] = set()  # left their slots, but Redis has not answered their last commits yet
        self._slots = slots
        self._arrived = arrived
        self._constrain = constrain
        self._gave_up = gave_up
        self._ready: list[Claimed] = []
        self._claiming = asyncio.Lock()
        # Only one waits for a free `run_constraints`: a lease lasts for little more than two compilations.
        self._unconstrained: asyncio.Queue[Claimed] = asyncio.Queue(1)
        self._orphan_check = -math.inf  # time of the last one
        self._room = asyncio.Event()
        self._room.set()

    def __bool__(self) -> bool:
        return bool(self._ready)

    def take(self) -> Claimed:
        """The next claimed job. Its slot stays reserved until `ending` or `done`."""
        return self._ready.pop(0)

    def ending(self, request_id: str) -> None:
        """The request left its slot, but Redis does not know yet. Until `done` the orphan check ignores it."""
        self._ending.add(request_id)
        self._held.discard(request_id)
        self._room.set()

    def done(self, request_id: str) -> None:
        """The request left its slot, and Redis knows its end or another verifier has it."""
        self._ending.discard(request_id)
        self._held.discard(request_id)
        self._room.set()

    async def run_new(self) -> None:
        reconnect = Reconnect("claims")
        while True:
            if len(self._held) >= self._slots:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                if asyncio.get_running_loop().time() - self._orphan_check >= ORPHAN_CHECK_S:
                    # No slot was free lately. An orphan has begun before, so it comes before waiting jobs.
                    await self._claim_orphans()
                    continue
                request_id = await self._store.next_job(self._instance, BLOCK_MS)
                reconnect.succeeded()
                if request_id is not None:
                    await self._claim(request_id)
            except DISCONNECTED as error:
                await reconnect.failed(error)

    async def run_orphans(self) -> None:
        """Look for ever for jobs whose verifier is gone, whose delivery to this verifier was lost, or that Redis lost
        all traces of but their hashes."""
        reconnect = Reconnect("orphans")
        while True:
            await asyncio.sleep(ORPHAN_CHECK_S)
            await reconnect.insist(self._store.mend)
            if len(self._held) < self._slots:
                await reconnect.insist(self._claim_orphans)

    async def _claim_orphans(self) -> None:
        self._orphan_check = asyncio.get_running_loop().time()
        for request_id in await self._store.orphans(self._instance):
            await self._claim(request_id)

    async def stop(self, *loops: "asyncio.Task[None]") -> None:
        """Cancel the loops, but not during a claim: otherwise the job would wait until its lease ends."""
        async with self._claiming:
            for loop in loops:
                loop.cancel()
        await asyncio.wait(loops)
        await self._unconstrained.join()

    async def run_constraints(self) -> None:
        """Make the constraints of claimed jobs for ever, one at a time, while others are claimed."""
        while True:
            one = await self._unconstrained.get()
            try:
                one = replace(one, constraint=await asyncio.to_thread(self._constrain, one.claim.job, one.output))
            except GrammarError as error:
                one = replace(one, refusal=str(error))
            self._can_begin(one)
            self._unconstrained.task_done()

    def _can_begin(self, one: Claimed) -> None:
        self._ready.append(one)
        self._arrived()

    async def _claim(self, request_id: str) -> None:
        async with self._claiming:
            if len(self._held) >= self._slots or request_id in self._held or request_id in self._ending:
                return  # the other loop took the last slot meanwhile; a later orphan check finds the job again
            self._held.add(request_id)
            claimed = False
            try:
                claim = await self._store.claim(request_id, self._instance)
                if isinstance(claim, ScriptOutcome):
                    logger.debug("claim_refused", request=request_id, outcome=claim)
                    if claim is ScriptOutcome.POISON:
                        self._gave_up()
                    return
                at_ns = time.time_ns()
                output = await self._committed(claim)
                if output is None:
                    await self._store.give_up(request_id, claim.epoch, claim.committed)
                    self._gave_up()
                    return
                claimed = True
                one = Claimed(claim, output, at_ns=at_ns)
                if claim.job.grammar or claim.job.thinking is not None:
                    await self._unconstrained.put(one)
                else:
                    self._can_begin(one)
            finally:
                if not claimed:
                    self.done(request_id)

    async def _committed(self, claim: Claim) -> list[int] | None:
        """The tokens that earlier claims committed; None if the log cannot be read or lacks some."""
        if not claim.committed:
            return []
        try:
            log = await read_log(self._redis, claim.job.request_id)
        except codec.CodecError as error:
            logger.error("log_unreadable", request=claim.job.request_id, error=str(error))
            return None
        output = [token for _, chunk in log for token in chunk.tokens]
        return output if len(output) == claim.committed else None
