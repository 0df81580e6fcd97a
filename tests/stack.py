"""A real stack for end-to-end tests: verifier and drafters in this process or as processes of their own."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from services.drafter.proposer import Proposer
from services.drafter.worker import DrafterWorker as DrafterWorker
from services.gateway.storage.follow import LogFollower
from services.verifier.load import LoadedTarget
from services.verifier.worker import VerifierWorker
from shared.fleet.registry import Registry
from shared.model import model_source
from shared.process.spans import Tracer
from shared.wire.broker import Broker, connect
from shared.wire.jobs import JobStore
from shared.wire.messages import Card, Chunk, DrafterCard, Job, Sampling, Speculation, VerifierCard
from tests.following import follow
from tests.patience import PROCESS_S
from tests.toys import drafter_card

_names = count()


@dataclass(slots=True)
class Answer:
    """What a request got: its tokens, who guessed them, and its chunks."""

    tokens: list[int]
    chunks: list[Chunk]

    @property
    def accepted(self) -> int:
        return sum(chunk.accepted for chunk in self.chunks)

    @property
    def sources(self) -> set[str]:
        return {source for chunk in self.chunks for source in chunk.sources if source}


class Client:
    """Submits jobs and follows their logs, as a gateway does."""

    def __init__(self, broker: Broker, model: str) -> None:
        self.store = JobStore(broker.redis, broker.blocking, model)
        self.registry = Registry(broker.redis)
        self._follower = LogFollower(broker.redis, broker.blocking, f"client-{next(_names)}")
        self._model = model

    async def run(self) -> None:
        await self._follower.run()

    def job(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        tokens: int,
        speculation: Speculation = Speculation.ALWAYS,
        cache_prompt: bool = True,
    ) -> Job:
        return Job(
            request_id=f"test-{next(_names)}",
            model=self._model,
            prompt=tuple(prompt),
            sampling=sampling,
            max_tokens=tokens,
            speculation=speculation,
            cache_prompt=cache_prompt,
        )

    async def ask(self, job: Job) -> Answer:
        """Submit and follow to the end."""
        answer = Answer([], [])
        async with aclosing(self.stream(job)) as chunks:
            async for chunk in chunks:
                answer.tokens += chunk.tokens
                answer.chunks.append(chunk)
        return answer

    async def stream(self, job: Job) -> AsyncGenerator[Chunk, None]:
        """Submit and yield chunk by chunk."""
        await self.store.submit(job, 1000)
        async with aclosing(follow(self._follower, job.request_id)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def cards(self, wanted: int, within_s: float = PROCESS_S) -> list[Card]:
        """All cards as soon as there are at least `wanted`, each drafter known to the verifier."""
        async with asyncio.timeout(within_s):
            while True:
                cards = await self.registry.list()
                verifiers = [card for card in cards if isinstance(card, VerifierCard)]
                known = {counts.drafter for card in verifiers for counts in card.drafters}
                drafters = {card.id for card in cards if isinstance(card, DrafterCard)}
                if len(cards) >= wanted and (not verifiers or drafters <= known):
                    return cards
                await asyncio.sleep(0.05)


@asynccontextmanager
async def client(url: str, model: Path) -> AsyncIterator[Client]:
    """A client of the stack at `url`."""
    async with connect(url) as broker:
        one = Client(broker, model_source.model_name(model))
        task = asyncio.create_task(one.run())
        yield one
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def verifier(
    url: str, loaded: LoadedTarget, lease_ms: int = 10_000, tracer: Tracer | None = None
) -> AsyncIterator[str]:
    """A verifier in this process over an already loaded target; yields its id."""
    stop = asyncio.Event()
    instance = f"verifier-{next(_names)}"
    async with connect(url) as broker:
        worker = VerifierWorker(broker, loaded, Speculation.AUTO, instance, lease_ms, tracer=tracer)
        task = asyncio.create_task(worker.run(stop))
        yield instance
        stop.set()
        await task


@asynccontextmanager
async def drafter(
    url: str, proposer: Proposer, kind: str = "lookup", name: str = "", model: str = "m"
) -> AsyncIterator[str]:
    """A drafter in this process; yields its id. Those of one `model` are equals, and a request gets one of them."""
    stop = asyncio.Event()
    instance = name or f"drafter-{next(_names)}"
    async with connect(url) as broker:
        card = replace(drafter_card(instance, kind, model), n_vocab=0)  # any target
        task = asyncio.create_task(DrafterWorker(broker, proposer, card).run(stop))
        yield instance
        stop.set()
        await task


class Processes:
    """Services started as a user would start them, ended at the latest with the test."""

    def __init__(self, url: str, environment: Mapping[str, str] | None = None) -> None:
        """`environment` are their variables: ours unless given."""
        self._url = url
        self._environment = environment
        self.running: list[subprocess.Popen[bytes]] = []

    def start(
        self, service: str, *options: str, log: "int | IO[bytes]" = subprocess.DEVNULL
    ) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", f"services.{service}", "--redis", self._url, *options]
        process = subprocess.Popen(command, stderr=log, env=self._environment)
        self.running.append(process)
        return process

    def end(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
