"""Who is let in and whose turn it is: bounds per caller and for all, and callers that take turns."""

import asyncio
from collections.abc import Iterator
from itertools import count

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.jobs import Admission, Append, Claim, JobStore
from shared.wire.messages import Chunk, Finish
from shared.wire.scripts import SHARE, ScriptOutcome
from tests.examples import few
from tests.toys import job

OWNER = "verifier-1"
LIMIT = 100
DONE = Chunk(tokens=(), finish=Finish.STOP)


def store_of(broker: Broker) -> JobStore:
    return JobStore(broker.redis, broker.blocking, "toy")


async def submit(
    store: JobStore, name: str, places: int = LIMIT, size: int = 10, limit: int = 0, tokens: int = 0
) -> ScriptOutcome:
    """A job whose caller is its name's first letter and which may take `size` tokens."""
    admission = Admission(caller=name[0], limit=limit, tokens=tokens)
    return await store.submit(job(name, prompt=(5,), max_tokens=size - 1), places, admission=admission)


async def serve(store: JobStore) -> str | None:
    """Claim the next job and end it."""
    name = await store.next_job(OWNER, 1)
    if name is not None:
        claim = await store.claim(name, OWNER)
        assert isinstance(claim, Claim)
        [outcome] = await store.commit([Append(request_id=name, epoch=claim.epoch, base=0, chunk=DONE)])
        assert outcome is ScriptOutcome.OK
    return name


async def served(store: JobStore) -> list[str]:
    """Everything that waits, in the order in which it is served."""
    names = []
    while (name := await serve(store)) is not None:
        names.append(name)
    return names


async def test_callers_take_turns_however_many_requests_they_queued(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    for index in range(5):
        await submit(store, f"a{index}")
    for name in ("b0", "c0", "b1"):
        await submit(store, name)
    assert (await store.queue()).waiting == 8
    assert await served(store) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"]
    assert (await store.queue()).waiting == 0


async def test_a_newcomer_waits_for_one_request_of_each_other_caller_at_most(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    for index in range(40):
        await submit(store, f"a{index:02}")
    assert [await serve(store) for _ in range(3)] == ["a00", "a01", "a02"]
    await submit(store, "b")
    assert (await served(store)).index("b") <= 1


@pytest.mark.parametrize("victim", ["a0", "a1"])
async def test_who_leaves_the_queue_lets_the_next_one_of_its_caller_move_up(broker: Broker, victim: str) -> None:
    store = store_of(broker)
    await store.ensure_group()
    for name in ("a0", "a1", "a2"):
        await submit(store, name)
    assert await store.cancel(victim) is ScriptOutcome.OK
    assert await served(store) == [name for name in ("a0", "a1", "a2") if name != victim]


async def test_a_job_that_is_released_waits_in_no_lane(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    for name in ("a0", "a1"):
        await submit(store, name)
    assert await store.next_job(OWNER, 1) == "a0"
    await store.claim("a0", OWNER)
    assert await store.release("a0", 1) is ScriptOutcome.OK
    assert await served(store) == ["a1", "a0"]


async def test_a_job_that_expired_while_it_waited_blocks_nobody(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    for name in ("a0", "a1", "a2"):
        await submit(store, name)
    pipeline = broker.redis.pipeline(transaction=False)
    pipeline.delete(keys.job("a0"), keys.job("a1"))
    await pipeline.execute()
    assert await store.next_job(OWNER, 1) == "a0"
    assert await store.claim("a0", OWNER) is ScriptOutcome.GONE
    assert await served(store) == ["a2"]


async def test_a_deadline_that_passed_while_waiting_frees_the_place_and_the_lane(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    late = job("late", timeout_ms=1)
    assert await store.submit(late, 1, admission=Admission(caller="a")) is ScriptOutcome.OK
    while await submit(store, "a1", places=1) is ScriptOutcome.FULL:
        pass
    assert await store.claim("late", OWNER) is ScriptOutcome.FINISHED
    assert await served(store) == ["a1"]


async def test_a_claim_without_a_delivery_can_be_found_again(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    for name in ("a0", "a1"):
        await submit(store, name)
    claim = await store.claim("a1", OWNER)
    assert isinstance(claim, Claim)
    assert await store.release("a1", claim.epoch) is ScriptOutcome.OK
    assert sorted(await served(store)) == ["a0", "a1"]


async def test_a_caller_has_a_limit_of_its_own(broker: Broker) -> None:
    store = store_of(broker)
    assert [await submit(store, name, limit=2) for name in ("a0", "a1", "a2")] == [
        ScriptOutcome.OK,
        ScriptOutcome.OK,
        ScriptOutcome.OVER,
    ]
    assert await submit(store, "b0", limit=2) is ScriptOutcome.OK
    assert await store.cancel("a0") is ScriptOutcome.OK
    assert await submit(store, "a3", limit=2) is ScriptOutcome.OK


async def fill(store: JobStore, caller: str, names: Iterator[int], places: int) -> int:
    """Submit until refused; how many were let in."""
    admitted = 0
    while await submit(store, f"{caller}{next(names)}", places) is ScriptOutcome.OK:
        admitted += 1
    return admitted


async def test_whoever_comes_first_leaves_room_for_others(broker: Broker) -> None:
    store, names, places = store_of(broker), count(), 32
    first = await fill(store, "a", names, places)
    assert first == places * SHARE // (SHARE + 1)
    assert await submit(store, f"a{next(names)}", places) is ScriptOutcome.OVER
    for caller in "bcde":
        assert await submit(store, f"{caller}{next(names)}", places) is ScriptOutcome.OK


async def test_tokens_are_bounded_too_and_a_lone_request_is_always_let_in(broker: Broker) -> None:
    store = store_of(broker)
    assert await submit(store, "a0", size=500, tokens=100) is ScriptOutcome.OK
    assert await submit(store, "b0", size=10, tokens=100) is ScriptOutcome.FULL
    await store.cancel("a0")
    assert [await submit(store, f"a{index}", size=30, tokens=100) for index in range(1, 4)] == [ScriptOutcome.OK] * 3
    assert await submit(store, "b1", size=11, tokens=100) is ScriptOutcome.FULL
    assert await submit(store, "a4", size=10, tokens=100) is ScriptOutcome.OVER
    assert await submit(store, "b2", size=10, tokens=100) is ScriptOutcome.OK


async def test_nothing_is_left_of_requests_that_ended(broker: Broker) -> None:
    store = store_of(broker)
    await store.ensure_group()
    for name in ("a0", "a1", "b0", "b1"):
        await submit(store, name)
    await store.cancel("a1")
    await served(store)
    for key in (keys.lanes("toy"), keys.shares("toy"), keys.admitted("toy")):
        assert await broker.redis.pttl(key) == -2  # type: ignore[attr-defined]


@settings(max_examples=few(40))
@given(steps=st.lists(st.sampled_from(["submit a", "submit b", "submit c", "serve", "cancel"]), max_size=40))
def test_between_two_turns_of_a_caller_all_others_that_wait_have_one(steps: list[str]) -> None:
    """And nobody is forgotten, whatever else happens in between."""

    async def run() -> None:
        server = fakeredis.FakeServer()
        redis = fakeredis.FakeAsyncRedis(server=server, socket_timeout=None)
        store = JobStore(redis, redis, "toy")
        await store.ensure_group()
        waiting: dict[str, list[str]] = {caller: [] for caller in "abc"}
        passed: dict[str, set[str]] = {caller: set() for caller in "abc"}  # who had a turn while it waited
        names = count()

        def turn(name: str) -> None:
            caller = name[0]
            assert waiting[caller].pop(0) == name
            passed[caller] = set()
            for other in "abc":
                if other != caller and waiting[other]:
                    assert caller not in passed[other]
                    passed[other].add(caller)

        for step in [*steps, *["serve"] * len(steps)]:
            everything = [name for lane in waiting.values() for name in lane]
            if step.startswith("submit"):
                name = f"{step[-1]}{next(names):02}"
                if not waiting[name[0]]:
                    passed[name[0]] = set()
                assert await submit(store, name) is ScriptOutcome.OK
                waiting[name[0]].append(name)
            elif step == "cancel" and everything:
                victim = everything[len(everything) // 2]
                await store.cancel(victim)
                if waiting[victim[0]][0] == victim:
                    passed[victim[0]] = set()  # it gave its turn away
                waiting[victim[0]].remove(victim)
            elif step == "serve" and everything:
                name = await serve(store) or ""
                turn(name)
        assert not any(waiting.values())
        await redis.aclose()

    asyncio.run(run())
