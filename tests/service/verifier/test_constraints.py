"""Constrained requests through a real Redis: hand-over between verifiers, and grammars that nobody checked."""

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from services.drafter.model_proposer import ModelProposer
from services.verifier.constraint import DOES_NOT_COMPILE
from services.verifier.engine import GRAMMAR
from services.verifier.load import LoadedTarget
from shared.law.grammar import Grammars, Matcher
from shared.law.speedup import RowCosts
from shared.wire.broker import Broker
from shared.wire.messages import Finish, Job, Sampling, Speculation
from tests.patience import HANG_S
from tests.stack import Client, client, drafter, verifier
from tests.toys import ToyTarget, ToyVocabulary
from tests.unit.verifier.test_constraint import PERSON, SCHEMA, reference, thinking

TOY = ToyVocabulary()
LAW = Sampling(seed=5)


def toy(path: Path, took: Callable[[int], object] = lambda rows: None) -> LoadedTarget:
    """A toy target that looks loaded, with the toy's own vocabulary."""
    return LoadedTarget(
        model=cast(Any, SimpleNamespace(path=path, vocabulary=TOY)),
        context=cast(Any, ToyTarget(took=took, n_ctx=600)),
        costs=RowCosts({1: 1.0, 2: 1.01, 8: 1.07, 64: 2.0}),
        device="cpu",
        level="strict",
        note="a toy",
        noise=0.0,
        min_rows=1,
    )


def constrained(one: Client, **options: Any) -> Job:
    plain = one.job([5, 6, 7], LAW, 60, Speculation.AUTO)
    return msgspec.structs.replace(plain, **{"grammar": PERSON, **options})


async def test_a_constrained_answer_survives_its_verifier(valkey: Broker, valkey_url: str, model_path: Path) -> None:
    pause = threading.Event()
    async with AsyncExitStack() as exits:
        first = AsyncExitStack()
        await first.enter_async_context(verifier(valkey_url, toy(model_path, lambda rows: pause.wait(0.02))))
        one = await exits.enter_async_context(client(valkey_url, model_path))
        job = constrained(one, speculation=Speculation.OFF)
        stream = one.stream(job)
        tokens = [token for _ in range(5) for token in (await anext(stream)).tokens]
        await first.aclose()
        assert len(tokens) < len(reference(job))
        await exits.enter_async_context(verifier(valkey_url, toy(model_path)))
        tokens += [token async for chunk in stream for token in chunk.tokens]
    assert tokens == reference(job)
    jsonschema.validate(json.loads(TOY.text(tokens)), SCHEMA)


async def test_without_a_drafter_forced_tokens_come_several_a_round(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    async with verifier(valkey_url, toy(model_path)), client(valkey_url, model_path) as one:
        job = constrained(one)
        answer = await one.ask(job)
    assert answer.tokens == reference(job)
    assert answer.sources == {GRAMMAR}
    assert len(answer.tokens) > 1.5 * len(answer.chunks)


async def test_a_thinking_budget_is_kept(valkey: Broker, valkey_url: str, model_path: Path) -> None:
    async with verifier(valkey_url, toy(model_path)), client(valkey_url, model_path) as one:
        sampling = Sampling(seed=5, logit_bias=((1, -100.0), (62, -100.0)))
        job = constrained(one, grammar="", thinking=thinking(7), sampling=sampling, max_tokens=20)
        assert (await one.ask(job)).tokens == reference(job)


@pytest.mark.parametrize(
    "grammar",
    ["start: <secret", "\x00", '{"grammars": 3}', "start: " + "(" * 20_000, "start: /" + "a" * (1 << 20) + "/"],
    ids=["broken", "nothing", "not one", "deep", "large"],
)
async def test_a_job_with_a_hostile_grammar_ends_with_an_error_and_the_next_one_is_served(
    valkey: Broker, valkey_url: str, model_path: Path, grammar: str
) -> None:
    async with verifier(valkey_url, toy(model_path)), client(valkey_url, model_path) as one:
        answer = await one.ask(constrained(one, grammar=grammar))
        [last] = answer.chunks
        assert (last.finish, last.detail) == (Finish.ERROR, DOES_NOT_COMPILE)
        job = constrained(one)
        assert (await one.ask(job)).tokens == reference(job)


async def test_others_go_on_while_a_grammar_compiles(
    valkey: Broker, valkey_url: str, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling, go_on = threading.Event(), threading.Event()
    compile = Grammars.compile

    def slow(self: Grammars, grammar: str) -> Matcher:
        compiling.set()
        assert go_on.wait(30)
        return compile(self, grammar)

    monkeypatch.setattr(Grammars, "compile", slow)
    async with verifier(valkey_url, toy(model_path)), client(valkey_url, model_path) as one:
        free = one.job([8, 9], Sampling(seed=5, logit_bias=((1, -100.0),)), 500, Speculation.OFF)
        stream = one.stream(free)
        await anext(stream)
        waiting = asyncio.create_task(one.ask(constrained(one)))
        async with asyncio.timeout(HANG_S):
            await asyncio.to_thread(compiling.wait)
            async for chunk in stream:
                last = chunk
        assert last.finish is Finish.LENGTH
        assert not waiting.done()
        go_on.set()
        assert (await waiting).chunks[-1].finish is Finish.STOP


async def test_a_model_drafter_helps_with_a_constrained_answer(
    valkey: Broker, valkey_url: str, model_path: Path
) -> None:
    """It knows nothing of the grammar: what it guesses beside it gets no rows."""
    async with (
        verifier(valkey_url, toy(model_path)),
        drafter(valkey_url, ModelProposer(ToyTarget(n_ctx=600)), "model", "helper"),
        client(valkey_url, model_path) as one,
    ):
        await one.cards(2)
        grammar = "start: /[a-z0-9 ,:]{100,}/"
        job = constrained(one, grammar=grammar, speculation=Speculation.ALWAYS)
        assert (await one.ask(job)).tokens == reference(job)
