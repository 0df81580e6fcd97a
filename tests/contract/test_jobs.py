"""The durable plane: idempotent, fenced, ordered, and every request ends once, on a fake and on a real server."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from shared.fleet.registry import Registry
from shared.wire import codec, drafts, keys
from shared.wire.broker import Broker
from shared.wire.jobs import Append, Claim, JobStore, Queue, Renewal
from shared.wire.messages import Chunk, Close, Finish, Proposal
from shared.wire.reading import read_job, read_log
from shared.wire.scripts import MAX_SILENT, ScriptOutcome
from tests.toys import drafter_card, job

OWNER, OTHER = "verifier-1", "verifier-2"


def store_of(broker: Broker, lease_ms: int = 10_000) -> JobStore:
    return JobStore(broker.redis, broker.blocking, "toy", lease_ms)


def append(epoch: int, base: int, tokens: Sequence[int], finish: Finish = Finish.NONE) -> Append:
    return Append(request_id="r1", epoch=epoch, base=base, chunk=Chunk(tokens=tuple(tokens), finish=finish))


async def claimed(store: JobStore, owner: str = OWNER) -> Claim:
    claim = await store.claim("r1", owner)
    assert isinstance(claim, Claim)
    return claim


async def commit(store: JobStore, *appends: Append) -> list[ScriptOutcome]:
    return await store.commit(appends)


async def log_of(broker: Broker) -> list[tuple[int, tuple[int, ...], Finish]]:
    return [(base, chunk.tokens, chunk.finish) for base, chunk in await read_log(broker.redis, "r1")]


async def test_a_job_is_delivered_claimed_committed_and_ended(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    assert await store.submit(job(), 10) is ScriptOutcome.OK
    assert await store.next_job(OWNER, 10) == "r1"
    claim = await claimed(store)
    assert (claim.job, claim.epoch, claim.committed) == (job(), 1, 0)
    assert await commit(store, append(1, 0, [4, 5])) == [ScriptOutcome.OK]
    assert await commit(store, append(1, 2, [6], Finish.LENGTH)) == [ScriptOutcome.OK]
    assert await log_of(broker) == [(0, (4, 5), Finish.NONE), (2, (6,), Finish.LENGTH)]
    assert await store.orphans(OTHER) == []


async def test_a_job_submitted_before_any_verifier_came_is_delivered(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    assert await store.next_job(OWNER, 10) is None  # makes the group
    assert await store.next_job(OWNER, 10) == "r1"


async def test_submitting_twice_is_one_job(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    assert await store.submit(job(), 10) is ScriptOutcome.OK
    assert await store.submit(job(), 10) is ScriptOutcome.DUPLICATE
    assert await store.next_job(OWNER, 10) == "r1"
    assert await store.next_job(OWNER, 10) is None


async def test_admission_counts_live_requests_and_heals(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    assert await store.submit(job("a"), 2) is ScriptOutcome.OK
    assert await store.submit(job("b", timeout_ms=1), 2) is ScriptOutcome.OK
    assert await store.submit(job("c"), 1) is ScriptOutcome.FULL
    assert await store.cancel("a") is ScriptOutcome.OK
    assert await store.submit(job("d"), 2) is ScriptOutcome.OK


async def test_a_repeated_commit_changes_nothing(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    await claimed(store)
    assert await commit(store, append(1, 0, [4, 5])) == [ScriptOutcome.OK]
    assert await commit(store, append(1, 0, [4, 5])) == [ScriptOutcome.DUPLICATE]
    assert await log_of(broker) == [(0, (4, 5), Finish.NONE)]


async def test_a_stale_epoch_cannot_commit_renew_or_release(broker: Broker) -> None:
    store = store_of(broker, lease_ms=0)
    await store.submit(job(), 10)
    await claimed(store)
    second = await claimed(store, OTHER)
    assert second.epoch == 2
    assert await store.commit([append(1, 0, [4])], [Renewal("r1", 1)]) == [ScriptOutcome.STALE, ScriptOutcome.STALE]
    assert await store.release("r1", 1) is ScriptOutcome.STALE
    assert await commit(store, append(2, 0, [7])) == [ScriptOutcome.OK]
    assert await log_of(broker) == [(0, (7,), Finish.NONE)]


async def test_a_gap_is_refused(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    await claimed(store)
    assert await commit(store, append(1, 3, [4])) == [ScriptOutcome.GAP]
    assert await log_of(broker) == []


async def test_a_held_job_cannot_be_claimed_and_a_lapsed_one_can(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    await claimed(store)
    assert await store.claim("r1", OTHER) is ScriptOutcome.HELD
    assert await store.release("r1", 1) is ScriptOutcome.OK
    assert (await claimed(store, OTHER)).epoch == 2


async def test_two_claimers_at_once_get_one_claim(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    results = await asyncio.gather(*(store.claim("r1", f"v{index}") for index in range(8)))
    assert sum(isinstance(result, Claim) for result in results) == 1
    assert results.count(ScriptOutcome.HELD) == 7


async def test_a_successor_sees_what_was_committed(broker: Broker) -> None:
    store = store_of(broker, lease_ms=0)
    await store.submit(job(), 10)
    await claimed(store)
    await commit(store, append(1, 0, [4, 5, 6]))
    claim = await claimed(store, OTHER)
    assert claim.committed == 3
    assert await commit(store, append(2, 3, [7], Finish.STOP)) == [ScriptOutcome.OK]
    assert await log_of(broker) == [(0, (4, 5, 6), Finish.NONE), (3, (7,), Finish.STOP)]


async def test_a_released_job_is_delivered_again(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    await store.submit(job(), 10)
    await store.next_job(OWNER, 10)
    await claimed(store)
    await store.release("r1", 1)
    assert await store.next_job(OTHER, 10) == "r1"
    assert await store.orphans(OTHER) == ["r1"]


async def test_a_silent_owners_job_is_found(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    await store.submit(job(), 10)
    await store.next_job(OWNER, 10)
    assert await store.orphans(OTHER) == ["r1"]
    assert await store.orphans(OWNER) == ["r1"]  # and asking hides it from nobody
    assert await store.orphans(OTHER) == ["r1"]


async def test_cancelling_ends_a_request_once_and_its_verifier_learns(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    await claimed(store)
    await commit(store, append(1, 0, [4]))
    assert await store.cancel("r1") is ScriptOutcome.OK
    assert await store.cancel("r1") is ScriptOutcome.CANCELLED
    assert await store.commit([append(1, 1, [5])], [Renewal("r1", 1)]) == [
        ScriptOutcome.CANCELLED,
        ScriptOutcome.CANCELLED,
    ]
    assert await store.claim("r1", OTHER) is ScriptOutcome.FINISHED
    assert await log_of(broker) == [(0, (4,), Finish.NONE), (1, (), Finish.CANCELLED)]


async def test_cancelling_after_the_end_changes_nothing(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    await claimed(store)
    await commit(store, append(1, 0, [4], Finish.STOP))
    assert await store.cancel("r1") is ScriptOutcome.FINISHED
    assert await store.cancel("never heard of") is ScriptOutcome.GONE
    assert await log_of(broker) == [(0, (4,), Finish.STOP)]


async def test_an_answer_without_tokens_ends_too(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    await claimed(store)
    assert await commit(store, append(1, 0, [], Finish.STOP)) == [ScriptOutcome.OK]
    assert await commit(store, append(1, 0, [], Finish.STOP)) == [ScriptOutcome.FINISHED]
    assert await log_of(broker) == [(0, (), Finish.STOP)]


async def test_a_poison_job_ends_with_an_error(broker: Broker) -> None:
    store = store_of(broker, lease_ms=0)
    await store.submit(job(), 10)
    for _ in range(3):
        await claimed(store)
    assert await store.claim("r1", OWNER) is ScriptOutcome.POISON
    assert [finish for _, _, finish in await log_of(broker)] == [Finish.ERROR]
    [(_, letter)] = await broker.redis.xrange(keys.dead("toy"))
    assert (letter[b"r"], codec.decode_job(letter[b"payload"]), letter[b"committed"]) == (b"r1", job(), b"0")
    assert await broker.redis.pttl(keys.dead("toy")) > 0  # type: ignore[attr-defined]
    assert await store.claim("r1", OWNER) is ScriptOutcome.FINISHED
    assert len(await broker.redis.xrange(keys.dead("toy"))) == 1


@pytest.mark.parametrize("late", ["commit", "renewal"])
async def test_a_claim_whose_verifier_speaks_again_is_no_sign_of_poison(broker: Broker, late: str) -> None:
    store = store_of(broker, lease_ms=0)
    await store.submit(job(), 10)
    first, _, _ = [await claimed(store) for _ in range(3)]
    if late == "commit":
        assert await commit(store, append(first.epoch, 0, [4])) == [ScriptOutcome.STALE]
    else:
        assert await store.commit([], [Renewal("r1", first.epoch)]) == [ScriptOutcome.STALE]
    assert (await claimed(store)).epoch == 4
    assert await store.claim("r1", OWNER) is ScriptOutcome.POISON


async def test_an_owner_that_asks_again_counts_once(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    for epoch in range(1, 8):  # the reply is lost again and again
        assert (await claimed(store)).epoch == epoch
    assert await commit(store, append(7, 0, [4])) == [ScriptOutcome.OK]


async def test_progress_forgives_earlier_attempts(broker: Broker) -> None:
    store = store_of(broker, lease_ms=0)
    await store.submit(job(), 10)
    for attempt in range(1, 8):
        claim = await claimed(store)
        assert await commit(store, append(claim.epoch, attempt - 1, [4])) == [ScriptOutcome.OK]


async def test_a_passed_deadline_ends_the_request_at_its_claim(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(timeout_ms=1), 10)
    await asyncio.sleep(0.005)
    assert await store.claim("r1", OWNER) is ScriptOutcome.DEADLINE
    assert [finish for _, _, finish in await log_of(broker)] == [Finish.DEADLINE]


async def test_a_job_whose_deadline_passed_in_a_lane_ends_with_the_next_submission(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job("first"), 10)
    await store.submit(job("second", timeout_ms=1), 10)  # waits behind the first, where no verifier sees it
    await asyncio.sleep(0.005)
    await store.submit(job("third"), 10)
    assert [chunk.finish for _, chunk in await read_log(broker.redis, "second")] == [Finish.DEADLINE]
    assert await store.live() == ["first", "third"]
    assert await store.claim("second", OWNER) is ScriptOutcome.FINISHED
    assert await broker.redis.pttl(keys.log("second")) > 0  # type: ignore[attr-defined]


async def test_commits_survive_a_server_that_forgot_its_scripts(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    await claimed(store)
    await broker.redis.script_flush()  # type: ignore[attr-defined]
    outcomes = await store.commit([append(1, 0, [4])], [Renewal("r1", 1)])
    assert outcomes == [ScriptOutcome.OK, ScriptOutcome.OK]


async def test_a_lost_stream_is_made_again(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    await broker.redis.pipeline(transaction=False).delete(keys.jobs("toy")).execute()  # type: ignore[attr-defined]
    assert await store.next_job(OWNER, 10) is None
    await store.submit(job(), 10)
    assert await store.next_job(OWNER, 10) == "r1"


@pytest.mark.parametrize("end", ["finish", "cancel", "leave running"])
async def test_every_key_expires(broker: Broker, end: str) -> None:
    store = store_of(broker)
    await store.ensure_group()
    await store.submit(job(), 10)
    await claimed(store)
    await commit(store, append(1, 0, [4]))
    if end == "finish":
        await commit(store, append(1, 1, [5], Finish.STOP))
    elif end == "cancel":
        await store.cancel("r1")
    everything = await broker.redis.keys("*")  # type: ignore[attr-defined]
    assert len(everything) >= 3
    for key in everything:
        assert await broker.redis.pttl(key) > 0, key  # type: ignore[attr-defined]


async def test_a_job_can_be_read_by_a_drafter(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    assert await read_job(broker.redis, "r1") == job()
    assert await read_job(broker.redis, "gone") is None


@pytest.mark.parametrize("end", ["finished", "cancelled", "cancelled while it waited", "abandoned", "late", "poison"])
async def test_however_a_job_ends_its_prompt_goes_and_its_log_stays(broker: Broker, end: str) -> None:
    store = store_of(broker, lease_ms=1)
    await store.submit(job(timeout_ms=1 if end == "late" else 60_000), 10)
    if end == "late":
        await asyncio.sleep(0.002)
        assert await store.claim("r1", OWNER) is ScriptOutcome.DEADLINE
    elif end == "poison":
        for _ in range(MAX_SILENT):
            assert isinstance(await store.claim("r1", OWNER), Claim)
            await asyncio.sleep(0.002)
        assert await store.claim("r1", OWNER) is ScriptOutcome.POISON
    elif end == "finished":
        epoch = (await claimed(store)).epoch
        await commit(store, append(epoch, 0, [4], Finish.STOP))
    elif end == "abandoned":
        await store.abandon("r1")
    else:
        if end == "cancelled":
            await claimed(store)
        await store.cancel("r1")
    assert await read_job(broker.redis, "r1") is None
    assert [finish is not Finish.NONE for _, _, finish in await log_of(broker)] == [True]
    assert await store.submit(job(), 10) is ScriptOutcome.DUPLICATE, "a late copy of the submission begins nothing"
    assert await read_job(broker.redis, "r1") is None


async def test_an_entry_whose_job_expired_leaves_the_stream(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    await store.submit(job(), 10)
    await broker.redis.pipeline(transaction=False).delete(keys.job("r1")).execute()  # type: ignore[attr-defined]
    assert await store.next_job(OWNER, 10) == "r1"
    assert await store.claim("r1", OWNER) is ScriptOutcome.GONE
    assert await store.orphans(OTHER) == []


@pytest.mark.parametrize("key", [keys.job("r1"), keys.log("r1")])
async def test_a_job_that_somebody_damaged_costs_no_other_job_of_its_round(broker: Broker, key: str) -> None:
    store = store_of(broker)
    for name in ("r1", "r2"):
        await store.submit(job(name), 10)
        assert isinstance(await store.claim(name, OWNER), Claim)
    await broker.redis.delete(key)
    await broker.redis.execute_command("SET", key, "x")  # type: ignore[attr-defined]
    appends = [replace(append(1, 0, [4]), request_id=name) for name in ("r1", "r2")]
    assert await store.commit(appends) == [ScriptOutcome.DAMAGED, ScriptOutcome.OK]
    assert await store.readers(["r1", "r2"]) == ["", ""]
    assert await store.abandon("r1") is ScriptOutcome.DAMAGED


async def test_the_queue_is_what_no_verifier_took_yet(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    assert await store.queue() == Queue(0, 0)
    for name in ("a", "b", "c", "d"):
        await store.submit(job(name), 10)
    assert (await store.queue()).waiting == 4
    assert isinstance(await store.claim("a", OWNER), Claim)
    await store.cancel("c")
    assert (await store.queue()).waiting == 2
    await store.cancel("a")
    await store.claim("b", OWNER)
    assert (await store.queue()).waiting == 1
    await store.cancel("d")
    assert await store.queue() == Queue(0, 0)


async def test_a_wait_lasts_by_redis_own_clock_whoever_waits(broker: Broker) -> None:
    store, redis = store_of(broker), broker.redis
    seconds, _ = await redis.time()  # type: ignore[attr-defined]
    for ago, caller in ((30, ""), (90, "cafe"), (60, "beef")):
        place = f"{caller} {(seconds - ago) * 1_000_000} {caller or 'r1'}"
        await redis.zadd(keys.lanes("toy"), {place: 0})  # type: ignore[attr-defined]
    queue = await store.queue()
    assert queue.waiting == 3
    assert 89_000 <= queue.oldest_ms <= 120_000


async def test_a_submission_that_its_cancel_overtook_does_not_begin(broker: Broker) -> None:
    """It was written to one connection and the cancel to another."""
    store = store_of(broker)
    await store.ensure_group()
    assert await store.cancel("r1") is ScriptOutcome.GONE
    assert await store.submit(job(), 10) is ScriptOutcome.DUPLICATE
    assert await store.live() == []
    assert await store.next_job(OWNER, 10) is None
    assert await store.claim("r1", OWNER) is ScriptOutcome.GONE
    assert await store.cancel("r1") is ScriptOutcome.GONE
    assert await log_of(broker) == []
    assert await broker.redis.pttl(keys.job("r1")) > 0  # type: ignore[attr-defined]


class Forgetful:
    """A server that restarts before every command, as it looks to a client: scripts are never known."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redis, name)

    def pipeline(self, transaction: bool) -> Any:
        pipeline = self._redis.pipeline(transaction=transaction)
        execute = pipeline.execute

        async def forget(raise_on_error: bool = True) -> Any:
            await self._redis.script_flush()
            return await execute(raise_on_error)

        pipeline.execute = forget
        return pipeline


async def test_commits_survive_a_server_that_restarts_again_and_again(broker: Broker) -> None:
    store = JobStore(cast(Any, Forgetful(broker.redis)), broker.blocking, "toy")
    await store.submit(job(), 10)
    await claimed(store)
    assert await store.commit([append(1, 0, [4])], [Renewal("r1", 1)]) == [ScriptOutcome.OK, ScriptOutcome.OK]


async def test_a_claim_whose_reply_was_lost_is_had_by_asking_again(broker: Broker) -> None:
    store = store_of(broker)
    await store.submit(job(), 10)
    first = await claimed(store)
    for _ in range(5):
        again = await claimed(store)
    assert await store.claim("r1", OTHER) is ScriptOutcome.HELD
    assert await commit(store, append(first.epoch, 0, [4])) == [ScriptOutcome.STALE]
    assert await commit(store, append(again.epoch, 0, [4])) == [ScriptOutcome.OK]


async def test_a_connection_that_breaks_anywhere_leaves_no_key_without_its_ttl(broker: Broker) -> None:
    """Whatever makes keys in several commands sends them as one transaction."""
    pipelines: list[bool] = []

    class Watched(Forgetful):
        def pipeline(self, transaction: bool) -> Any:
            pipelines.append(transaction)
            return self._redis.pipeline(transaction=transaction)

    watched = cast(Any, Watched(broker.redis))
    store = JobStore(watched, broker.blocking, "toy")
    await store.ensure_group()
    await drafts.send(watched, [("d", Close(request_id="r1"))])
    assert pipelines == [True, False]  # a hint makes no key
    await drafts.Inbox(watched, broker.blocking, "d").open()
    guess = Proposal(request_id="r1", epoch=1, base=0, prefix_hash=1, tokens=(4,), scores=(0.5,), drafter="d")
    await drafts.propose(watched, "d", [("v", guess)])
    await Registry(watched).beat(drafter_card("d"))
    assert pipelines[2:] == [True] * 3


async def test_a_long_log_is_read_in_parts_and_whole(broker: Broker) -> None:
    store, count = store_of(broker), 2500
    await store.submit(job(), 10)
    await claimed(store)
    await commit(store, *(append(1, base, [base % 50 + 2]) for base in range(count)))
    sizes: list[int] = []

    class Counted(Forgetful):
        async def xrange(self, *arguments: Any, **options: Any) -> Any:
            entries = await self._redis.xrange(*arguments, **options)
            sizes.append(len(entries))
            return entries

    log = await read_log(cast(Any, Counted(broker.redis)), "r1")
    assert [(base, chunk.tokens) for base, chunk in log] == [(base, (base % 50 + 2,)) for base in range(count)]
    assert sizes == [1000, 1000, 500]
