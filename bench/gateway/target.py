"""A scripted target: `python -m bench.gateway.target` claims jobs and commits rounds at a fixed pace.

It speaks to Redis as a verifier does (claims, epochs, one pipeline of commits per round), and stands for several
verifiers whose rounds do not fall together. A request's seed is its number: for each one that ends, a line of JSON in
the record tells when its commits were sent.
"""

import asyncio
import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, TextIO

import msgspec
import structlog
import typer

from shared.fleet.registry import Registry, target_keeper
from shared.model.llama.model import Model
from shared.model.model_source import resolve
from shared.process import lifecycle, logs
from shared.settings import command_line
from shared.settings.verifier_options import VerifierOptions
from shared.wire.broker import Broker, connect
from shared.wire.jobs import Append, Claim, JobStore
from shared.wire.messages import Chunk, Finish, Speculation, VerifierCard
from shared.wire.scripts import ScriptOutcome

logger = structlog.get_logger()

MODEL: Final = "scripted"
_WORDS: Final = 4000  # people use few of the words that they know
_CLAIM_MS: Final = 500  # how long one look for a job takes; bounds how late a stop is noticed


class Commits(msgspec.Struct, frozen=True):
    """One request's commits: the offset after each, and when it was sent (`time.monotonic_ns`)."""

    seed: int
    offsets: list[int]
    sent_ns: list[int]


def words(model: Model) -> list[int]:
    """Tokens that are one space and letters: a text of them has as many spaces as tokens."""
    pieces = ((token, model.vocabulary.piece(token)) for token in range(model.vocabulary.n_tokens))
    found = [token for token, piece in pieces if piece[:1] == b" " and piece[1:].isalpha()]
    return found[:_WORDS]


@dataclass(slots=True)
class _Running:
    claim: Claim
    offset: int
    offsets: list[int] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)

    def next(self, width: int, script: list[int]) -> Chunk:
        """The next round: all guessed by one drafter but for the last token, with two guesses refused."""
        job = self.claim.job
        last = min(self.offset + width, job.max_tokens)
        tokens = tuple(script[(job.sampling.seed + index) % len(script)] for index in range(self.offset, last))
        accepted = len(tokens) - 1
        return Chunk(
            tokens=tokens,
            sources=(*("drafter-scripted",) * accepted, ""),
            drafted=accepted + 2,
            accepted=accepted,
            tried=accepted + 1,
            finish=Finish.LENGTH if last == job.max_tokens else Finish.NONE,
        )


class Verifier:
    """One of the verifiers that the process stands for: its requests, and a round every `round_s` from `start` on."""

    def __init__(self, store: JobStore, width: int, script: list[int], record: TextIO) -> None:
        self._store = store
        self._width = width
        self._script = script
        self._record = record
        self.running: dict[str, _Running] = {}
        self.late_rounds = 0

    def take(self, claim: Claim) -> None:
        """Serve this request from the next round on."""
        self.running[claim.job.request_id] = _Running(claim, claim.committed)

    async def run(self, start: float, round_s: float) -> None:
        """Commit for ever. A round that comes late is not caught up with."""
        clock = asyncio.get_running_loop().time
        while True:
            start += round_s
            if start < clock():
                self.late_rounds += 1
                start = clock()
            await asyncio.sleep(start - clock())
            if self.running:
                await self._round()

    async def _round(self) -> None:
        chunks = [(one, one.next(self._width, self._script)) for one in self.running.values()]
        appends = [
            Append(request_id=one.claim.job.request_id, epoch=one.claim.epoch, base=one.offset, chunk=chunk)
            for one, chunk in chunks
        ]
        now = time.monotonic_ns()
        outcomes = await self._store.commit(appends)
        for (one, chunk), outcome in zip(chunks, outcomes, strict=True):
            one.offset += len(chunk.tokens)
            one.offsets.append(one.offset)
            one.sent_ns.append(now)
            if chunk.finish is not Finish.NONE or outcome is not ScriptOutcome.OK:
                self._end(one)

    def _end(self, one: _Running) -> None:
        job = one.claim.job
        del self.running[job.request_id]
        line = msgspec.json.encode(Commits(job.sampling.seed, one.offsets, one.sent_ns))
        self._record.write(line.decode() + "\n")
        self._record.flush()


async def _claim(store: JobStore, verifiers: list[Verifier], slots: int) -> None:
    await store.ensure_group()
    while True:
        freest = min(verifiers, key=lambda verifier: len(verifier.running))
        if len(freest.running) >= slots:
            await asyncio.sleep(0.005)
            continue
        request_id = await store.next_job("scripted", _CLAIM_MS)
        if request_id is None:
            continue
        claim = await store.claim(request_id, "scripted")
        if isinstance(claim, Claim):
            freest.take(claim)


def main(
    record: Annotated[Path, typer.Option(help="Where to tell of commits.")],
    verifiers: Annotated[int, typer.Option(help="How many verifiers to stand for.", min=1)] = 5,
    slots: Annotated[int, typer.Option(help="Requests that each serves at once.", min=1)] = 64,
    round_ms: Annotated[float, typer.Option(help="Time between a verifier's rounds.", min=1)] = 70,
    width: Annotated[int, typer.Option(help="Tokens per commit.", min=1)] = 4,
    options: VerifierOptions = VerifierOptions(),
) -> None:
    """Serve as verifiers that know what to say. Of the verifier's own options only some mean anything here."""
    logs.configure("verifier", options.log_level)

    async def serve(stop: asyncio.Event) -> None:
        path = resolve(options.target_model)
        model = Model(path, vocab_only=True)
        script = words(model)
        async with connect(options.redis, blocking_connections=2) as broker:
            keeper = target_keeper(Registry(broker.redis), path)
            await keeper.keep()
            store = JobStore(broker.redis, broker.blocking, MODEL)
            with record.open("a") as lines:
                served = [Verifier(store, width, script, lines) for _ in range(verifiers)]
                card = _card(model, keeper.digest, options, verifiers * slots)
                await _serve(broker, served, store, card, slots, round_ms / 1000, stop)
        logger.info("scripted_target_stopped", late_rounds=sum(one.late_rounds for one in served))

    lifecycle.run(serve)


async def _serve(
    broker: Broker,
    served: list[Verifier],
    store: JobStore,
    card: VerifierCard,
    slots: int,
    round_s: float,
    stop: asyncio.Event,
) -> None:
    start = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(lifecycle.heartbeat(Registry(broker.redis), lambda: card)),
            group.create_task(_claim(store, served, slots)),
            *(
                group.create_task(one.run(start + round_s * index / len(served), round_s))
                for index, one in enumerate(served)
            ),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()


def _card(model: Model, vocabulary: str, options: VerifierOptions, slots: int) -> VerifierCard:
    return VerifierCard(
        id=lifecycle.instance_name("scripted"),
        host=socket.gethostname(),
        pid=os.getpid(),
        model=MODEL,
        fingerprint=vocabulary,
        vocabulary=vocabulary,
        n_vocab=model.vocabulary.n_tokens,
        n_ctx=options.target.ctx,
        slots=slots,
        device="scripted",
        exactness=options.target.exactness,
        exactness_note="a scripted target",
        layout="streams",
        speculation=Speculation.AUTO,
        created=int(time.time()),
    )


if __name__ == "__main__":
    command_line.run(command_line.command(main), "python -m bench.gateway.target")
