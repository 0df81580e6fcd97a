"""The verifier's loops over a real Redis server with a toy target: claims, cancels, hand-overs, drafters."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from services.drafter.lookup_proposer import LookupProposer
from services.drafter.model_proposer import ModelProposer
from services.drafter.proposer import Draft, Opening
from services.verifier import readers, remeasuring
from services.verifier.calibrate import SETTLED, Calibration
from services.verifier.load import LoadedTarget
from shared.fleet import liveness
from shared.fleet.registry import Registry, draft_keeper
from shared.law.speedup import RowCosts
from shared.machine import load
from shared.model import row_costs
from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.commands import Redis
from shared.wire.messages import DrafterCard, Finish, Sampling, Speculation, VerifierCard
from shared.wire.reading import read_log
from tests.patience import HANG_S
from tests.stack import Client, client, drafter, verifier
from tests.toy_loaded import toy
from tests.toys import EOG, ToyTarget, drafter_card, plain_answer

ENDLESS = Sampling(seed=5, logit_bias=((EOG, -100.0),))


@asynccontextmanager
async def stack(url: str, path: Path, *targets: LoadedTarget, lease_ms: int = 10_000) -> AsyncIterator[Client]:
    async with AsyncExitStack() as exits:
        for target in targets:
            await exits.enter_async_context(verifier(url, target, lease_ms))
        one = await exits.enter_async_context(client(url, path))
        await one.cards(len(targets))
        yield one


def reference(one: Client, prompt: list[int], tokens: int) -> list[int]:
    return plain_answer(one.job(prompt, ENDLESS, tokens), n_ctx=600)


async def until(condition: Callable[[], bool], within_s: float = HANG_S) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another thread or process
            await asyncio.sleep(0.005)


async def verifier_card(redis: Redis, found: Callable[[VerifierCard], bool]) -> VerifierCard:
    async with asyncio.timeout(HANG_S):
        while True:
            for card in await Registry(redis).list():
                if isinstance(card, VerifierCard) and found(card):
                    return card
            await asyncio.sleep(0.02)


async def until_last(redis: Redis, request_id: str, finish: Finish) -> None:
    """Wait until a request's log ends in this way."""
    async with asyncio.timeout(HANG_S):
        while (await read_log(redis, request_id))[-1][1].finish is not finish:  # noqa: ASYNC110 - Redis has no event
            await asyncio.sleep(0.02)


async def test_more_requests_than_slots_are_all_answered(valkey: Broker, valkey_url: str, model_path: Path) -> None:
    async with stack(valkey_url, model_path, toy(model_path, sequences=3)) as one:
        prompts = [[5, 6, index + 2] for index in range(10)]
        answers = await asyncio.gather(*(one.ask(one.job(prompt, ENDLESS, 30)) for prompt in prompts))
        assert [answer.tokens for answer in answers] == [reference(one, prompt, 30) for prompt in prompts]


async def test_a_cancelled_request_frees_its_slot_and_disturbs_nobody(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    target = toy(model_path, sequences=2)
    async with stack(valkey_url, model_path, target) as one:
        doomed = one.job([5, 6, 7], ENDLESS, 500)
        stream = one.stream(doomed)
        await anext(stream)
        other = asyncio.create_task(one.ask(one.job([8, 9], ENDLESS, 200)))
        await one.store.cancel(doomed.request_id)
        last = [chunk async for chunk in stream][-1]
        assert last.finish is Finish.CANCELLED
        await verifier_card(valkey.redis, lambda card: doomed.request_id not in {r.request_id for r in card.requests})
        assert (await other).tokens == reference(one, [8, 9], 200)


async def test_a_verifier_that_drains_hands_over_and_the_answer_goes_on(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    prompt = [5, 6, 7]
    async with AsyncExitStack() as exits:
        first = AsyncExitStack()
        await first.enter_async_context(verifier(valkey_url, toy(model_path)))
        one = await exits.enter_async_context(client(valkey_url, model_path))
        stream = one.stream(one.job(prompt, ENDLESS, 400))
        tokens = [token for _ in range(3) for token in (await anext(stream)).tokens]
        await first.aclose()
        await exits.enter_async_context(verifier(valkey_url, toy(model_path)))
        tokens += [token async for chunk in stream for token in chunk.tokens]
        assert tokens == reference(one, prompt, 400)


async def test_a_frozen_verifier_is_replaced_and_cannot_commit_when_it_wakes(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    thaw, decodes = threading.Event(), []

    def freeze(rows: int) -> None:
        decodes.append(rows)
        if len(decodes) == 5:
            thaw.wait(30)

    frozen = toy(model_path, freeze)
    try:
        async with AsyncExitStack() as exits:
            await exits.enter_async_context(verifier(valkey_url, frozen, 300))
            one = await exits.enter_async_context(client(valkey_url, model_path))
            await one.cards(1)
            job = one.job([5, 6, 7], ENDLESS, 60, Speculation.OFF)
            answer = asyncio.create_task(one.ask(job))
            await until(lambda: len(decodes) == 5)
            await exits.enter_async_context(verifier(valkey_url, toy(model_path), 300))
            assert (await answer).tokens == reference(one, [5, 6, 7], 60)
            thaw.set()
            await verifier_card(valkey.redis, lambda card: card.counters["decodes"] >= 5 and not card.requests)
            assert len(decodes) <= 10  # it learned within a few rounds that the request is no longer its own
    finally:
        thaw.set()


async def test_a_request_that_outlives_its_deadline_ends_with_that(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    pause = threading.Event()
    async with stack(valkey_url, model_path, toy(model_path, lambda rows: pause.wait(0.02))) as one:
        job = one.job([5, 6, 7], ENDLESS, 500)
        late = type(job)(**{name: getattr(job, name) for name in job.__struct_fields__} | {"timeout_ms": 150})
        answer = await one.ask(late)
        assert answer.chunks[-1].finish is Finish.DEADLINE
        assert answer.tokens == reference(one, [5, 6, 7], 500)[: len(answer.tokens)]


async def test_a_request_whose_gateway_died_is_let_go(
    valkey: Broker, valkey_url: str, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "CHECK_S", 0.01)
    monkeypatch.setattr(readers, "SILENT_S", 0.1)
    pause = threading.Event()
    async with stack(valkey_url, model_path, toy(model_path, lambda rows: pause.wait(0.02))) as one:
        unread, read = one.job([5, 6, 7], ENDLESS, 500), one.job([8, 9], ENDLESS, 40)
        await one.store.submit(unread, 10, "a gateway that is gone")
        assert (await one.ask(read)).tokens == reference(one, [8, 9], 40)
        await until_last(valkey.redis, unread.request_id, Finish.ERROR)
        await verifier_card(valkey.redis, lambda card: card.counters["requests"] == 2 and not card.requests)


@pytest.mark.parametrize("kind", ["lookup", "model"])
async def test_a_drafter_that_joins_gets_work_and_one_that_leaves_is_forgotten(
    valkey: Broker, valkey_url: str, model_path: Path, kind: str
) -> None:
    pause = threading.Event()
    async with stack(valkey_url, model_path, toy(model_path, lambda rows: pause.wait(0.005))) as one:
        answer = asyncio.create_task(one.ask(one.job([5, 6, 7] * 8, ENDLESS, 550, Speculation.OFF)))
        speculating = asyncio.create_task(one.ask(one.job([5, 6, 7] * 8, ENDLESS, 550)))
        proposer = LookupProposer() if kind == "lookup" else ModelProposer(ToyTarget(n_ctx=600))
        async with drafter(valkey_url, proposer, kind, "helper"):
            await until(lambda: proposer.sessions > 0, within_s=1)
            if kind == "model":
                await verifier_card(valkey.redis, lambda card: any(counts.accepted for counts in card.drafters))
        await verifier_card(valkey.redis, lambda card: not card.drafters)
        expected = reference(one, [5, 6, 7] * 8, 550)
        assert (await answer).tokens == (await speculating).tokens == expected
        if kind == "model":
            assert (await speculating).sources == {"helper"}


async def test_a_drafter_of_another_vocabulary_is_refused_by_name_of_the_token(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    registry = Registry(valkey.redis)
    keeper = draft_keeper(registry, "stranger", [b"<|endoftext|>", b"1"])
    await keeper.keep()
    stranger = drafter_card("stranger")
    fields = {name: getattr(stranger, name) for name in stranger.__struct_fields__}
    await registry.beat(DrafterCard(**fields | {"fingerprint": "other", "vocabulary": keeper.digest}))
    async with stack(valkey_url, model_path, toy(model_path)) as one:
        card = await verifier_card(valkey.redis, lambda card: bool(card.refused))
        name, reason = card.refused[0]
        assert name == "stranger"
        assert reason == (
            "its vocabulary differs from the target's: 1 of 2 common tokens differ, the first at 0, which is"
            " b'<|endoftext|>', not b'0'"
        )
        assert (await one.ask(one.job([5, 6], ENDLESS, 10))).tokens == reference(one, [5, 6], 10)


async def test_a_prompt_that_another_verifier_promised_to_take_ends_with_an_error(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    async with stack(valkey_url, model_path, toy(model_path)) as one:
        answer = await one.ask(one.job([5] * 700, ENDLESS, 10))
        assert answer.chunks[-1].finish is Finish.ERROR
        assert "context of 600" in answer.chunks[-1].detail
        assert (await one.ask(one.job([5, 6], ENDLESS, 10))).tokens == reference(one, [5, 6], 10)


async def test_a_drafter_forgets_requests_whose_end_it_was_not_told(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    pause = threading.Event()
    proposer = ModelProposer(ToyTarget(n_ctx=600))
    async with (
        drafter(valkey_url, proposer, "model", "helper"),
        stack(valkey_url, model_path, toy(model_path, lambda rows: pause.wait(0.01))) as one,
    ):
        job = one.job([5, 6, 7], ENDLESS, 500)
        answer = asyncio.create_task(one.ask(job))
        await until(lambda: proposer.sessions == 1)
        await one.store.cancel(job.request_id)
        await answer
        await valkey.redis.delete(keys.inbox("helper"))
        await until(lambda: proposer.sessions == 0)


async def test_redis_losing_everything_ends_requests_and_the_next_one_works(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    pause = threading.Event()
    async with stack(valkey_url, model_path, toy(model_path, lambda rows: pause.wait(0.005))) as one:
        stream = one.stream(one.job([5, 6, 7], ENDLESS, 500))
        await anext(stream)
        await valkey.redis.flushall()  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="gone"):
            async for _ in stream:
                pass
        async with asyncio.timeout(HANG_S):
            assert (await one.ask(one.job([8, 9], ENDLESS, 20))).tokens == reference(one, [8, 9], 20)


class Roster:
    """A drafter that says nothing and knows for whom it works."""

    busy = False
    step_us = 0
    burst = 1

    def __init__(self, changed: asyncio.Event) -> None:
        self.requests: set[str] = set()
        self._changed = changed
        self._loop = asyncio.get_running_loop()

    @property
    def sessions(self) -> int:
        return len(self.requests)

    def open(self, opening: Opening) -> None:
        self.requests.add(opening.request_id)
        self._loop.call_soon_threadsafe(self._changed.set)

    def close(self, request_id: str) -> None:
        self.requests.discard(request_id)
        self._loop.call_soon_threadsafe(self._changed.set)

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        return True

    def step(self) -> list[Draft]:
        return []


async def test_requests_are_spread_evenly_and_a_fifth_equal_drafter_gets_work_within_a_second(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    pause, changed = threading.Event(), asyncio.Event()
    rosters = [Roster(changed) for _ in range(5)]

    async def spread(loads: list[int], within_s: float) -> None:
        async with asyncio.timeout(within_s):
            while sorted(len(roster.requests) for roster in rosters) != loads:
                changed.clear()
                await changed.wait()

    target = toy(model_path, lambda rows: pause.wait(0.01), sequences=8)
    async with stack(valkey_url, model_path, target) as one, AsyncExitStack() as exits, asyncio.TaskGroup() as group:
        for index, roster in enumerate(rosters[:4]):
            await exits.enter_async_context(drafter(valkey_url, roster, "model", f"d{index}"))
        await one.cards(5)
        jobs = [one.job([5, 6, index + 2], ENDLESS, 590) for index in range(8)]
        asking = [group.create_task(one.ask(job)) for job in jobs]
        await spread([0, 2, 2, 2, 2], within_s=10)
        await exits.enter_async_context(drafter(valkey_url, rosters[4], "model", "d4"))
        await spread([1, 1, 2, 2, 2], within_s=1)
        assert len(rosters[4].requests) == 1
        assert set().union(*(roster.requests for roster in rosters)) == {job.request_id for job in jobs}
        assert not any(task.done() for task in asking)
        for job in jobs:
            await one.store.cancel(job.request_id)


async def test_costs_from_a_busy_machine_are_measured_again_while_nothing_runs(
    valkey: Broker, valkey_url: str, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remeasuring, "FIRST_S", 0.01)
    monkeypatch.setattr(row_costs, "NOISY", math.inf)  # the toy's decodes take no time, so they differ by chance
    monkeypatch.setattr(load, "read", lambda: None)  # what else runs here now is not this test's
    target = toy(model_path)
    noisy = replace(target, calibration=Calibration({}, SETTLED.exactness, is_noisy=True, tokens=tuple(range(2, 62))))
    async with stack(valkey_url, model_path, noisy) as one:
        before = dict(RowCosts({1: 1.0, 2: 1.01, 8: 1.07, 64: 2.0}).table)
        card = await verifier_card(valkey.redis, lambda card: dict(card.row_ms) != before)
        assert 32 in dict(card.row_ms)
        answer = await one.ask(one.job([5, 6, 7], ENDLESS, 30))
        assert answer.tokens == reference(one, [5, 6, 7], 30)
