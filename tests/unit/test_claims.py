"""Claims never take more than there are slots, whichever loop finds a job first."""

import asyncio
from typing import Any, cast

from services.verifier.claims import Claims
from shared.jobs import Claim
from tests.toys import job


class Store:
    """Delivers whatever id it is given; claiming always succeeds, after a pause in which others may run."""

    def __init__(self) -> None:
        self.claimed: list[str] = []

    async def claim(self, request_id: str, owner: str) -> Claim:
        await asyncio.sleep(0)
        self.claimed.append(request_id)
        return Claim(job=job(request_id), epoch=1, committed=0, remaining_ms=1000)


def claims(slots: int) -> tuple[Claims, Store]:
    store = Store()
    return Claims(cast(Any, None), cast(Any, store), "v", slots, lambda: None), store


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


async def test_stopping_waits_for_a_claim_under_way() -> None:
    one, store = claims(slots=5)
    loop = asyncio.create_task(one._claim("r0"))
    await asyncio.sleep(0)
    await one.stop(loop)
    assert store.claimed == ["r0"]
    assert one.take().claim.job.request_id == "r0"
