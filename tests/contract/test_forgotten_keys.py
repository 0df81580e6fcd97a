"""Whichever key of a model Redis loses, every job is found again, because its hash says all there is to know."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.jobs import Admission, Append, Claim, JobStore
from shared.wire.messages import Chunk, Finish
from shared.wire.scripts import ScriptOutcome
from tests.toys import job

WAITING = ("first-a", "second-a", "third-a", "first-b")
TAKEN = ("claimed", "released", "delivered")


def store_of(broker: Broker, lease_ms: int = 10_000) -> JobStore:
    return JobStore(broker.redis, broker.blocking, "toy", lease_ms)


async def every_state(broker: Broker) -> JobStore:
    """One job in every state that a job can be in before it ends."""
    store = store_of(broker)
    await store.ensure_group()
    for name in TAKEN:
        assert await store.submit(job(name), 20, admission=Admission(caller=name)) is ScriptOutcome.OK
        assert await store.next_job("v1", 10) == name
    for name in ("claimed", "released"):
        assert isinstance(await store.claim(name, "v1"), Claim)
    await store.release("released", 1)
    for name in WAITING:
        assert await store.submit(job(name), 20, admission=Admission(caller=name[-1])) is ScriptOutcome.OK
    return store


async def state_of(redis: Any) -> tuple[object, ...]:
    """All but the order and the ids of the stream's entries."""
    queued = {fields[b"r"] for _, fields in await redis.xrange(keys.jobs("toy"))}
    lists = [await redis.zrange(key("toy"), 0, -1, withscores=True) for key in (keys.admitted, keys.lanes)]
    return queued, *lists, await redis.hgetall(keys.shares("toy"))


async def finish_all(store: JobStore, owner: str) -> list[str]:
    """Take and finish every job that can be found, in the order in which they came."""
    done: list[str] = []
    while True:
        name = await store.next_job(owner, 10)
        found = [name] if name else await store.orphans(owner)
        claims = [claim for name in found if isinstance(claim := await store.claim(name, owner), Claim)]
        if not claims and not name:
            return done
        for claim in claims:
            chunk = Chunk(tokens=(4,), finish=Finish.STOP)
            append = Append(request_id=claim.job.request_id, epoch=claim.epoch, base=0, chunk=chunk)
            assert await store.commit([append]) == [ScriptOutcome.OK]
            done.append(claim.job.request_id)


Loss = Callable[[Any], Awaitable[object]]


async def entry_of(redis: Any, name: str) -> bytes:
    return bytes(await redis.hget(keys.job(name), "entry"))


async def delete_entry(redis: Any, name: str) -> None:
    await redis.xdel(keys.jobs("toy"), await entry_of(redis, name))


async def acknowledge(redis: Any, name: str) -> None:
    """An operator's XACK: the entry stays, and no verifier is given it again."""
    assert await redis.xack(keys.jobs("toy"), keys.GROUP, await entry_of(redis, name)) == 1


LOSSES: dict[str, Loss] = {
    "nothing": lambda redis: redis.ping(),
    "admitted": lambda redis: redis.delete(keys.admitted("toy")),
    "lanes": lambda redis: redis.delete(keys.lanes("toy")),
    "shares": lambda redis: redis.delete(keys.shares("toy")),
    "jobs": lambda redis: redis.delete(keys.jobs("toy")),
    "trimmed": lambda redis: redis.xtrim(keys.jobs("toy"), maxlen=0, approximate=False),
    "a waiting entry": lambda redis: delete_entry(redis, "first-a"),
    "a held entry": lambda redis: delete_entry(redis, "claimed"),
    "admitted and shares": lambda redis: redis.delete(keys.admitted("toy"), keys.shares("toy")),
    "a held entry, acknowledged": lambda redis: acknowledge(redis, "claimed"),
    "a delivered entry, acknowledged": lambda redis: acknowledge(redis, "delivered"),
    "the group": lambda redis: redis.xgroup_destroy(keys.jobs("toy"), keys.GROUP),
}


@pytest.mark.parametrize("lost", LOSSES)
async def test_whatever_is_lost_every_job_is_found_again_and_its_verifier_may_fall_silent(
    broker: Broker, lost: str
) -> None:
    store, redis = await every_state(broker), broker.redis
    before = await state_of(redis)
    await LOSSES[lost](redis)
    await store.mend()
    assert await state_of(redis) == before
    assert (await store.queue()).waiting == 5
    await store.ensure_group()
    await redis.hset(keys.job("claimed"), "lease", 1)  # type: ignore[attr-defined] # its verifier fell silent
    done = await finish_all(store_of(broker), "v2")
    assert sorted(done) == sorted([*TAKEN, *WAITING])
    assert [name for name in done if name.endswith("-a")] == ["first-a", "second-a", "third-a"]
    assert await state_of(redis) == (set(), [], [], {})
    for key in await redis.keys("*"):  # type: ignore[attr-defined]
        assert await redis.pttl(key) > 0, key  # type: ignore[attr-defined]


async def test_an_acknowledged_entry_of_a_lost_job_does_not_stay(broker: Broker) -> None:
    """As a verifier leaves it that is killed while it drops such an entry."""
    store, redis = store_of(broker), broker.redis
    await store.ensure_group()
    for name in ("lost", "kept"):
        assert await store.submit(job(name), 20) is ScriptOutcome.OK
    assert await store.next_job("v1", 10) == "lost"
    await acknowledge(redis, "lost")
    await redis.delete(keys.job("lost"), keys.log("lost"))
    await store.mend()
    assert await finish_all(store, "v2") == ["kept"]
    assert await state_of(redis) == (set(), [], [], {})


@pytest.mark.parametrize("lost", ["lanes", "shares"])
@pytest.mark.parametrize("end", ["claim", "cancel", "finish"])
async def test_what_happens_between_a_loss_and_its_mending_stops_no_lane(broker: Broker, lost: str, end: str) -> None:
    store = store_of(broker)
    await store.ensure_group()
    for name in ("first", "second", "third"):
        assert await store.submit(job(name), 20) is ScriptOutcome.OK
    await LOSSES[lost](broker.redis)
    if end == "cancel":
        await store.cancel("first")
    else:
        assert isinstance(await store.claim("first", "v1"), Claim)
    if end == "finish":
        chunk = Chunk(tokens=(4,), finish=Finish.STOP)
        await store.commit([Append(request_id="first", epoch=1, base=0, chunk=chunk)])
    await store.mend()
    rest = ["second", "third"]
    assert await store.live() == (["first"] if end == "claim" else []) + rest
    assert (await store.queue()).waiting == 2
    assert await finish_all(store_of(broker), "v2") == rest


@pytest.mark.parametrize("name", ["claimed", "delivered", "first-a", "second-a"])
async def test_a_job_whose_hash_is_lost_leaves_its_place(broker: Broker, name: str) -> None:
    store = await every_state(broker)
    await broker.redis.delete(keys.job(name))
    await store.mend()
    assert name not in await store.live()
    assert name.encode() not in await broker.redis.hgetall(keys.shares("toy"))
    if name != "claimed":
        await broker.redis.hset(keys.job("claimed"), "lease", 1)  # type: ignore[attr-defined]
    assert sorted(await finish_all(store_of(broker), "v2")) == sorted({*TAKEN, *WAITING} - {name})


async def test_a_submission_queues_the_first_of_its_lane_again(broker: Broker) -> None:
    """At once, without waiting for whoever mends."""
    store = await every_state(broker)
    await LOSSES["jobs"](broker.redis)
    await store.submit(job("fourth-a"), 20, admission=Admission(caller="a"))
    assert await store.next_job("v2", 10) is None  # makes the group
    assert await store.next_job("v2", 10) == "first-a"
