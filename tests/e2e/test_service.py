"""The whole service on the real model, as clients see it: one gateway, one verifier, drafters, official client."""

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI
from redis import Redis

from shared.fleet.registry import Registry
from shared.model.llama.vocabulary import Vocabulary
from shared.wire.broker import Broker
from shared.wire.messages import Sampling, VerifierCard
from tests.e2e.plain import PlainLoop
from tests.ports import free_port
from tests.requantised import requantised
from tests.stack import Processes, client

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

QUESTIONS = [
    "Tell me a story about a fox.",
    "Repeat: 🦊🇩🇪 漢字 naïve",
    "请用中文写一句话。",
    "List: one, two, three, one, two,",
]


@contextmanager
def service(url: str, model: Path, *drafts: Path) -> Iterator[tuple[str, Processes]]:
    """Processes started by their own commands; yields the gateway's address once it is ready."""
    processes = Processes(url)
    address = f"http://127.0.0.1:{free_port()}"
    try:
        processes.start("gateway", "--port", address.rpartition(":")[2])
        target = ("--target-model", str(model), "--ctx", "512", "--threads", "1", "--lease", "1")
        processes.start("verifier", *target)
        processes.start("drafter")
        for draft in drafts:
            processes.start("drafter", "--draft-model", str(draft), "--threads", "1", "--ctx", "512")
        asyncio.run(ready(url, model, 3 + len(drafts)))
        yield address, processes
    finally:
        processes.end()


async def ready(url: str, model: Path, services: int) -> None:
    async with client(url, model) as one:
        await one.cards(services)


@pytest.fixture(scope="module")
def address(valkey_url: str, model_path: Path) -> Iterator[str]:
    """A service with a drafter of the whole model in 8 bits, for all tests that leave it as it is.

    They come last in this file: other tests empty Redis.
    """
    with Redis.from_url(valkey_url) as redis:
        redis.flushall()
    with service(valkey_url, model_path, requantised(model_path, "Q8_0")) as (url, _):
        yield url


@pytest.fixture
def mortal(valkey: Broker, valkey_url: str, model_path: Path) -> Iterator[tuple[str, Processes]]:
    """A service of its own over an empty Redis, with lookup only, for a test that kills what it wants."""
    with service(valkey_url, model_path) as found:
        yield found


async def ask(openai: AsyncOpenAI, question: str, **options: Any) -> str:
    extra = {"speculative": options.pop("speculative", True), **options.pop("extra", {})}
    answer = await openai.chat.completions.create(
        model="default", messages=[{"role": "user", "content": question}], extra_body=extra, **options
    )
    return str(answer.choices[0].message.content)


async def stream(openai: AsyncOpenAI, question: str, **options: Any) -> str:
    extra = {"speculative": options.pop("speculative", True)}
    pieces = []
    chunks = await openai.chat.completions.create(
        model="default", messages=[{"role": "user", "content": question}], stream=True, extra_body=extra, **options
    )
    async for chunk in chunks:
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    return "".join(pieces)


async def test_a_verifier_killed_in_mid_answer_is_replaced_and_the_stream_goes_on(
    mortal: tuple[str, Processes], valkey: Broker, model_path: Path, vocabulary: Vocabulary
) -> None:
    """SIGKILL at the first token; the client sees one stream with the text that it would have been."""
    address, processes = mortal
    question = QUESTIONS[0]
    body = {
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 60,
        "temperature": 1.0,
        "seed": 3,
        "stream": True,
        "return_token_ids": True,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{address}/v1/chat/completions", json=body) as response,
    ):
        tokens: list[int] = []
        finish = None
        killed = False
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            assert "error" not in chunk
            for choice in chunk["choices"]:
                tokens += choice.get("token_ids") or []
                finish = choice["finish_reason"] or finish
            if tokens and not killed:
                killed = True
                for card in await Registry(valkey.redis).list():
                    if isinstance(card, VerifierCard):
                        [process] = [process for process in processes.running if process.pid == card.pid]
                        process.send_signal(signal.SIGKILL)
                processes.start("verifier", "--target-model", str(model_path), "--ctx", "512", "--threads", "1")
    loop = PlainLoop(model_path)
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    prompt = vocabulary.tokenize(f"{system}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
    expected = loop.answer(prompt, Sampling(seed=3, temperature=1.0), 60).tokens
    loop.close()
    assert killed
    assert len(expected) > 20
    assert tokens == expected
    assert finish in ("stop", "length")


async def test_streamed_equals_whole_equals_undrafted_alone_and_eight_at_once(address: str) -> None:
    async with AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as openai:
        for temperature in (0.0, 1.0):
            options: dict[str, Any] = {"temperature": temperature, "seed": 7, "max_tokens": 24}
            plain = [await ask(openai, question, speculative=False, **options) for question in QUESTIONS]
            assert all(plain)
            assert [await stream(openai, question, **options) for question in QUESTIONS] == plain
            together = [coroutine(openai, question, **options) for question in QUESTIONS for coroutine in (ask, stream)]
            assert await asyncio.gather(*together) == [text for text in plain for _ in range(2)]
            stop = plain[0][12:17]
            cut = plain[0][: plain[0].index(stop)]
            assert await ask(openai, QUESTIONS[0], stop=[stop], **options) == cut
            assert await stream(openai, QUESTIONS[0], stop=[stop], **options) == cut


async def test_the_answer_says_how_it_was_drafted(address: str) -> None:
    body = {"messages": [{"role": "user", "content": QUESTIONS[0]}], "max_tokens": 30, "temperature": 0}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{address}/v1/chat/completions", json={**body, "speculative": True}) as response:
            drafted = (await response.json())["speculative"]
        async with session.post(f"{address}/v1/chat/completions", json={**body, "speculative": False}) as response:
            plain = (await response.json())["speculative"]
        async with session.get(f"{address}/metrics") as response:
            metrics = await response.text()
    assert drafted["drafted"] >= drafted["accepted"] > 0
    assert drafted["tokens_per_round"] > 1
    assert 0 < drafted["acceptance_per_offset"][0] <= 1
    assert drafted["reason"] is None
    assert plain["drafted"] == 0
    assert plain["reason"] == "speculation is off for this request"
    assert "spec_decode_num_accepted_tokens_total" in metrics
