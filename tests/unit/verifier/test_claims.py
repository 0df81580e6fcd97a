"""Claims never take more than there are slots, whichever loop finds a job first."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

from services.verifier.claims import ORPHAN_CHECK_S, Claims, Constrain
from shared.wire.jobs import Claim
from shared.wire.messages import Job
from tests.patience import HANG_S
from tests.toys import job

GRAMMAR = 'start: "a"'


class Store:
    """Delivers whatever id it is given; claiming always succeeds, after a pause in which others may run."""

    def __init__(self) -> None:
        self.claimed: list[str] = []
        self.waiting: list[str] = []
        self.orphaned: list[str] = []

    async def until(self, count: int) -> None:
        while len(self.claimed) < count:  # noqa: ASYNC110 - as long as it takes the loop under test
            await asyncio.sleep(0)

    async def next_job(self, owner: str, block_ms: int) -> str | None:
        return self.waiting.pop(0) if self.waiting else await asyncio.Future()

    async def orphans(self, owner: str) -> list[str]:
        found, self.orphaned = self.orphaned, []
        return found

    async def claim(self, request_id: str, owner: str) -> Claim:
        await asyncio.sleep(0)
        self.claimed.append(request_id)
        grammar = GRAMMAR if request_id.startswith("grammar") else ""
        return Claim(job=job(request_id, grammar=grammar), epoch=1, committed=0, remaining_ms=1000)


class Compiler:
    """Makes constraints when told to, and only then."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._may = threading.Semaphore(0)

    def __call__(self, job: Job, output: Sequence[int]) -> None:
        self.asked.append(job.request_id)
        assert self._may.acquire(timeout=HANG_S)

    def finish(self, count: int = 1) -> None:
        self._may.release(count)


def claims(slots: int, constrain: Constrain = lambda job, output: None) -> tuple[Claims, Store]:
    store = Store()
    return Claims(cast(Any, None), cast(Any, store), "v", slots, lambda: None, constrain), store


async def test_two_loops_that_find_jobs_at_once_share_the_slots() -> None:
    one, store = claims(slots=2)
    await asyncio.gather(*(one._claim(f"r{index}") for index in range(5)))
    assert store.claimed == ["r0", "r1"]
    one.done("r0")
    await one._claim("r2")
    assert store.claimed == ["r0", "r1", "r2"]


async def test_a_job_that_is_held_is_not_claimed_again() -> None:
    one, store = claims(slots=5)
    await one._claim("r0")
    await one._claim("r0")
    assert store.claimed == ["r0"]


async def test_a_job_that_ends_is_not_claimed_again_before_redis_has_heard_of_it() -> None:
    """Its slot is free at once, though: the commit may wait for a Redis that is away."""
    one, store = claims(slots=1)
    await one._claim("r0")
    one.ending("r0")
    store.orphaned = ["r0"]
    await one._claim_orphans()
    await one._claim("r1")
    assert store.claimed == ["r0", "r1"]
    one.done("r0")
    one.done("r1")
    await one._claim("r0")
    assert store.claimed == ["r0", "r1", "r0"]


async def test_stopping_waits_for_a_claim_under_way() -> None:
    one, store = claims(slots=5)
    loop = asyncio.create_task(one._claim("r0"))
    await asyncio.sleep(0)
    await one.stop(loop)
    assert store.claimed == ["r0"]
    assert one.take().claim.job.request_id == "r0"


async def test_a_lost_verifiers_job_comes_before_those_that_wait_when_a_slot_gets_free() -> None:
    """Or it would starve as long as there is always somebody waiting."""
    one, store = claims(slots=2)
    store.waiting = [f"w{index}" for index in range(9)]
    loop = asyncio.create_task(one.run_new())
    async with asyncio.timeout(HANG_S):
        await store.until(2)
        store.orphaned = ["lost"]
        one._orphan_check -= ORPHAN_CHECK_S  # both slots were taken for so long
        one.done("w0")
        await store.until(3)
        one.done("w1")
        await store.until(4)
    loop.cancel()
    assert store.claimed == ["w0", "w1", "lost", "w2"]


async def test_a_grammar_that_takes_long_holds_up_nobody_else() -> None:
    compiler = Compiler()
    one, store = claims(slots=9, constrain=compiler)
    store.waiting = ["grammar 1", "grammar 2", "r0", "r1"]
    loops = [asyncio.create_task(loop()) for loop in (one.run_new, one.run_constraints)]
    async with asyncio.timeout(HANG_S):
        await store.until(4)
        assert [one.take().claim.job.request_id for _ in range(2)] == ["r0", "r1"]
        assert not one
        compiler.finish(2)
        while not one:  # noqa: ASYNC110 - as long as it takes the loop under test
            await asyncio.sleep(0)
    assert one.take().claim.job.request_id == "grammar 1"
    for loop in loops:
        loop.cancel()


async def test_stopping_waits_for_the_grammars_of_claimed_jobs() -> None:
    """So that these jobs are given back."""
    compiler = Compiler()
    one, _ = claims(slots=9, constrain=compiler)
    constraints = asyncio.create_task(one.run_constraints())
    claiming = asyncio.create_task(one._claim("grammar"))
    async with asyncio.timeout(HANG_S):
        await claiming
        stopping = asyncio.create_task(one.stop(claiming))
        while not compiler.asked:  # noqa: ASYNC110 - as long as it takes the loop under test
            await asyncio.sleep(0)
        assert not stopping.done()
        compiler.finish()
        await stopping
    assert one.take().claim.job.request_id == "grammar"
    constraints.cancel()
