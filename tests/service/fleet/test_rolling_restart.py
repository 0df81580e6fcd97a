"""Verifiers and drafters are replaced one by one, their releases mixed, while requests run: nothing shows of it."""

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from services.drafter.lookup_proposer import LookupProposer
from services.drafter.model_proposer import ModelProposer
from shared.wire import codec
from shared.wire.broker import Broker
from tests.patience import PROCESS_S
from tests.releases import mixed
from tests.service.verifier.test_verifier import ENDLESS, reference
from tests.stack import Answer, Client, client, drafter, verifier
from tests.toy_loaded import toy
from tests.toys import ToyTarget

TOKENS = 100


class Rolling:
    """One of each kind at all times: the next one comes before the last one goes."""

    def __init__(self, url: str, path: Path, pause: threading.Event) -> None:
        self._url = url
        self._path = path
        self._pause = pause
        self._current: dict[str, AsyncExitStack] = {}
        self.started = 0

    async def replace(self, kind: str, one: Client) -> None:
        exits = AsyncExitStack()
        self.started += 1
        if kind == "verifier":
            target = toy(self._path, lambda rows: self._pause.wait(0.005), sequences=4)
            await exits.enter_async_context(verifier(self._url, target))
        elif kind == "lookup":
            await exits.enter_async_context(drafter(self._url, LookupProposer(), "lookup"))
        else:
            proposer = ModelProposer(ToyTarget(n_ctx=600))
            await exits.enter_async_context(drafter(self._url, proposer, "model", f"helper-{self.started}"))
        last = self._current.get(kind)
        self._current[kind] = exits
        if last is not None:
            await one.cards(4)
            await last.aclose()

    async def close(self) -> None:
        for exits in self._current.values():
            await exits.aclose()


@pytest.mark.parametrize("seed", range(2))
async def test_a_rolling_restart_of_mixed_releases_changes_no_answer(
    valkey: Broker, valkey_url: str, model_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(codec, "encode", mixed(seed))
    rolling, over = Rolling(valkey_url, model_path, threading.Event()), asyncio.Event()
    answers: list[Answer] = []

    async def keep_asking(prompt: list[int]) -> None:
        while not over.is_set():
            answer = await one.ask(one.job(prompt, ENDLESS, TOKENS))
            assert answer.tokens == reference(one, prompt, TOKENS)
            answers.append(answer)

    async with client(valkey_url, model_path) as one, asyncio.timeout(PROCESS_S):
        for kind in ("verifier", "lookup", "model"):
            await rolling.replace(kind, one)
        await one.cards(3)
        async with asyncio.TaskGroup() as group:
            for index in range(4):
                group.create_task(keep_asking([5, 6, 7 + index] * 4))
            for kind in ("verifier", "model", "lookup", "verifier"):
                await rolling.replace(kind, one)
            over.set()
        await rolling.close()
    assert sum(answer.accepted for answer in answers) > 0
