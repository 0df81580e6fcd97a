"""Jobs that nobody reads any more are cancelled, however their reader left and however slow Redis is."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from services.gateway.generation import cancelling
from services.gateway.generation.cancelling import Cancellations
from services.gateway.generation.generator import Generator
from services.gateway.generation.limits import Limits
from services.gateway.generation.preparation import Prepared, Reading
from services.gateway.storage.follow import LogFollower
from shared.wire.broker import Broker
from shared.wire.jobs import JobStore
from shared.wire.messages import Finish, Job
from shared.wire.reading import read_log
from shared.wire.scripts import ScriptOutcome
from tests.splitting import SERVED
from tests.toys import job


@pytest.fixture
async def follower(valkey: Broker) -> AsyncIterator[LogFollower]:
    follower = LogFollower(valkey.redis, valkey.blocking, "gateway")
    task = asyncio.create_task(follower.run())
    yield follower
    task.cancel()
    await asyncio.wait([task])


def prepared(*jobs: Job) -> Prepared:
    reading = Reading(piece=lambda token: b"x")
    return Prepared(
        model=replace(SERVED, name="toy"), lexicon=cast(Any, None), jobs=jobs, choices=len(jobs), reading=reading
    )


async def ends(broker: Broker, *jobs: Job) -> list[Finish]:
    return [chunk.finish for one in jobs for _, chunk in await read_log(broker.redis, one.request_id)]


async def until_nothing_runs() -> None:
    while tasks := {task for task in asyncio.all_tasks() if task.get_name().startswith("cancel ")}:
        await asyncio.wait(tasks)


async def test_a_reader_that_is_cancelled_while_it_leaves_spares_no_job(valkey: Broker, follower: LogFollower) -> None:
    jobs = job("r1"), job("r2"), job("r3")
    generator = Generator(valkey, follower, "g", Limits(requests=100))

    async def leave() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with generator.run(prepared(*jobs)):
            # This is next in the loop: before anything that leaving starts has run.
            asyncio.get_running_loop().call_soon(task.cancel)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(leave())
    await until_nothing_runs()
    assert await ends(valkey, *jobs) == [Finish.CANCELLED] * 3


async def test_a_cancellation_is_tried_until_redis_has_heard_it(
    valkey: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, failures = job("r1"), 3
    await JobStore(valkey.redis, valkey.blocking, one.model).submit(one, 100)
    cancel = JobStore.cancel

    async def sometimes(store: JobStore, request_id: str) -> ScriptOutcome:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise RedisConnectionError("No connection available.")
        return await cancel(store, request_id)

    monkeypatch.setattr(JobStore, "cancel", sometimes)
    monkeypatch.setattr(cancelling, "_PAUSE_S", 0)
    await Cancellations(valkey).finish([one])
    assert await ends(valkey, one) == [Finish.CANCELLED]
