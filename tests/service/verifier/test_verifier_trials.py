"""What verifiers and their like have been caught at: work done twice while its owner lives, two threads in one context,
a process that stays half dead after an outage. A toy target behind a real server."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from services.verifier import claims, failures
from shared.model.rows import LlamaError
from shared.wire import keys
from shared.wire.broker import Broker
from shared.wire.messages import Finish
from tests.patience import HANG_S
from tests.service.shared.test_redis_trials import behind
from tests.service.verifier.test_verifier import ENDLESS, reference
from tests.stack import client, verifier
from tests.toy_loaded import toy

LEASE_MS = 1600  # what a busy machine adds to a decode must not end it
LONG = [2 + index % 60 for index in range(500)]  # some eight decodes to read it


@pytest.mark.parametrize(("prompt", "tokens"), [([5, 6, 7], 40), (LONG, 2)], ids=["answer", "prompt"])
async def test_what_takes_longer_than_a_lease_is_never_run_twice(
    valkey: Broker, valkey_url: str, model_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: list[int], tokens: int
) -> None:
    monkeypatch.setattr(claims, "ORPHAN_CHECK_S", 0.05)
    decodes: list[float] = []

    def slowly(rows: int) -> None:
        decodes.append(time.monotonic())
        time.sleep(0.1 if tokens > 2 else 0.5)

    targets = [toy(model_path, slowly) for _ in range(2)]
    async with (
        verifier(valkey_url, targets[0], LEASE_MS),
        verifier(valkey_url, targets[1], LEASE_MS),
        client(valkey_url, model_path) as one,
    ):
        await one.cards(2)
        request = one.job(prompt, ENDLESS, tokens)
        answer = await one.ask(request)
        assert answer.tokens == reference(one, prompt, tokens)
        assert await valkey.redis.hget(keys.job(request.request_id), "epoch") == b"1"
    assert decodes[-1] - decodes[0] > 2 * LEASE_MS / 1000


async def test_one_thread_has_the_target_to_itself(valkey: Broker, valkey_url: str, model_path: Path) -> None:
    threads: set[int] = set()
    inside = threading.Lock()

    def alone(rows: int) -> None:
        assert inside.acquire(blocking=False)
        threads.add(threading.get_ident())
        inside.release()

    async with verifier(valkey_url, toy(model_path, alone)), client(valkey_url, model_path) as one:
        await one.cards(1)
        requests = [one.job([5, 6, index + 2], ENDLESS, 20) for index in range(8)]
        await asyncio.gather(*map(one.ask, requests))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_an_outage_of_three_seconds_is_a_pause(valkey: Broker, valkey_url: str, model_path: Path) -> None:
    slow = toy(model_path, lambda rows: time.sleep(0.005))
    async with behind(valkey_url) as (network, url), verifier(url, slow), client(valkey_url, model_path) as one:
        await one.cards(1)
        stream = one.stream(one.job([5, 6, 7], ENDLESS, 300))
        tokens = [*(await anext(stream)).tokens]
        network.part()
        asyncio.get_running_loop().call_later(3.0, network.heal)
        last = Finish.NONE
        async with asyncio.timeout(HANG_S):
            async for chunk in stream:
                tokens += chunk.tokens
                last = chunk.finish
        assert last is Finish.LENGTH
        assert tokens == reference(one, [5, 6, 7], 300)
        assert (await one.ask(one.job([8, 9], ENDLESS, 5))).tokens == reference(one, [8, 9], 5)


@pytest.mark.parametrize(("failing", "finish"), [(2, Finish.LENGTH), (3, Finish.ERROR)])
async def test_a_decode_that_fails_costs_its_requests_at_most_and_the_verifier_goes_on(
    valkey_url: str, model_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, finish: Finish
) -> None:
    monkeypatch.setattr(failures, "WAIT_S", 0.0)
    left = [0]

    def fail(rows: int) -> None:
        if left[0]:
            left[0] -= 1
            raise LlamaError("llama_decode failed with status -2")

    async with verifier(valkey_url, toy(model_path, fail)), client(valkey_url, model_path) as one:
        await one.cards(1)
        left[0] = failing
        answer = await one.ask(one.job([5, 6, 7], ENDLESS, 30))
        last = answer.chunks[-1]
        assert last.finish is finish
        assert last.detail == (failures.DETAIL if failing == 3 else "")
        assert answer.tokens == (reference(one, [5, 6, 7], 30) if failing == 2 else [])
        assert (await one.ask(one.job([5, 6, 7], ENDLESS, 30))).tokens == reference(one, [5, 6, 7], 30)
