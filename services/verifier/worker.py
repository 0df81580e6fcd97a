"""The verifier's loops: claim jobs, collect proposals, run rounds, commit, and publish its card.

One thread owns the target. The event loop does everything else, and never touches the engine while a round runs.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from services.verifier import hints
from services.verifier.card import at_work, introduce
from services.verifier.claims import Claims
from services.verifier.committer import Batch, Committer
from services.verifier.constraint import constrain
from services.verifier.engine import Engine, Gain
from services.verifier.failures import BROKEN, Failures, UndoneError, Verdict
from services.verifier.generation import Generation
from services.verifier.hints import Addressed
from services.verifier.hoards import Hoards
from services.verifier.introductions import Introductions
from services.verifier.listener import Listener
from services.verifier.load import LoadedTarget
from services.verifier.readers import Readers
from services.verifier.records import Records
from services.verifier.remeasuring import Remeasuring
from services.verifier.round import Decoded, Round
from services.verifier.speed import Speed
from shared.errors import StartError
from shared.fleet.registry import HEARTBEAT_S, Registry
from shared.law.grammar import Grammars
from shared.machine import load as machine_load
from shared.model import model_source
from shared.process import lifecycle
from shared.process.ready_file import ReadyFile
from shared.process.spans import Tracer
from shared.wire import drafts
from shared.wire.broker import DISCONNECTED, Broker, Reconnect
from shared.wire.jobs import LATE, Append, Claim, JobStore, Renewal
from shared.wire.messages import Chunk, Finish, Speculation
from shared.wire.scripts import ScriptOutcome

logger = structlog.get_logger()

DRAIN_S: Final = 10.0  # if Redis is away for longer, requests are handed over when their leases end
GRAMMARS_AT_ONCE: Final = 2  # compiled at the same time: more would take cores from a target on the CPU
LOOK_S: Final = 0.5  # between two looks at the registry, and so how late a drafter that joins is asked


class VerifierWorker:
    def __init__(
        self,
        broker: Broker,
        loaded: LoadedTarget,
        speculation: Speculation,
        instance: str,
        lease_ms: int = 10_000,
        trees: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        tracer: Tracer | None = None,
        aliases: Sequence[str] = (),
        ready_file: str = "",
        chat_template: str = "",
        cache_ram: int = 0,
    ) -> None:
        """Without `trees` the drafts of a request are one chain, even if the target has branches.

        A `chat_template` (Jinja) replaces the one of the model's file. Ended conversations may take `cache_ram` bytes
        of host memory.

        `clock` is monotonic, in seconds, and is never compared with another process's.
        """
        self._clock = clock
        self._news = asyncio.Event()  # wakes the round loop: a claim, a proposal, a lost request, or the drain
        self._redis = broker.redis
        self._loaded = loaded
        self._instance = instance
        model = model_source.model_name(loaded.model.path)
        vocabulary = loaded.model.vocabulary
        self._engine = Engine(
            loaded.context,
            loaded.costs,
            vocabulary.eog,
            min_rows=loaded.min_rows,
            speculation=speculation,
            trees=trees,
            graph_ms=loaded.graph_ms,
            clock=clock,
            site=loaded.site,
            part=loaded.part,
            cache_ram=cache_ram,
        )
        self._remeasuring = Remeasuring(
            loaded.context, self._engine.sequences, loaded.costs, loaded.calibration, machine_load.read
        )
        self._store = JobStore(broker.redis, broker.blocking, model, lease_ms)
        self._claims = Claims(
            broker.redis,
            self._store,
            instance,
            loaded.context.sequences,
            self._news.set,
            partial(constrain, grammars=Grammars(vocabulary)),
            partial(self._engine.counters.add, "poison", 1),
        )
        self._registry = Registry(broker.redis)
        self._hoards = Hoards(broker.redis, clock)
        self._introductions = Introductions(
            self._registry, vocabulary, loaded.model.path, clock, chat_template, self._hoards.refuses
        )
        self._committer = Committer(broker.redis, self._store, self._lose, self._claims.done)
        outboxes = drafts.Outboxes(broker.redis, broker.blocking, instance)
        self._listener = Listener(outboxes, self._engine.drafters, self._introductions, self._news.set, clock)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="target")
        self._records = Records(tracer or Tracer())
        self._draining = False
        self._failures = Failures()
        self._introduction = introduce(instance, loaded, self._introductions, speculation, aliases)
        self._speed = Speed()
        self._ready_file = ReadyFile(ready_file)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; then give every claim back, so that another verifier continues, and leave."""
        # Loading takes long, and Redis may have gone away meanwhile.
        await lifecycle.insist("start", self._enter, stop)
        async with lifecycle.Loops() as loops:
            new = loops.start(self._claims.run_new, name="new")
            orphans = loops.start(self._claims.run_orphans, name="orphans")
            for _ in range(GRAMMARS_AT_ONCE):
                loops.start(self._claims.run_constraints, name="constraints")
            readers = Readers(self._store, self._registry, partial(self._engine.counters.add, "unread"))
            loops.start(readers.run, name="readers")
            loops.start(self._committer.run, name="committer")
            loops.start(self._listener.run, name="listener")
            loops.start(self._hoards.run, name="hoards")
            loops.start(self._stay_known, name="registry")
            rounds = loops.start(self._rounds, name="rounds")
            loops.start(self._ready_file.run, name="ready file")
            await stop.wait()
            self._ready_file.end()
            loops.let_end()
            await self._claims.stop(new, orphans)
            self._draining = True
            self._news.set()
            with suppress(TimeoutError, *DISCONNECTED):
                async with asyncio.timeout(DRAIN_S):
                    await asyncio.shield(rounds)
                    await self._hand_back()
            loops.cancel()
        self._thread.shutdown()
        self._engine.close()

    async def _enter(self) -> None:
        await self._store.ensure_group()
        await self._introductions.keeper.keep()

    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        engine = self._engine
        while not self._draining:
            self._news.clear()
            began = self._clock()
            batch = self._reap()
            if batch or self._claims or self._listener.changed or engine.assignment.due:
                await self._arrange(batch)
            if not engine.running:
                await self._rest()
                continue
            self._take_proposals()
            round = engine.plan()
            planned = self._clock()
            if round.wait_ms:
                round = await self._wait_for_drafts(round.wait_ms)
            if len(round.rows):
                waited_s = self._clock() - planned
                try:
                    decoded = await loop.run_in_executor(self._thread, engine.run, round)
                except UndoneError as error:
                    await self._could_not(round, error)
                    continue
                self._failures.decoded()
                self._take_proposals()
                gains = engine.finish(decoded)
                await self._put(self._messages(gains))
                self._time(decoded, gains, began, waited_s)
            engine.counters.add("busy_us", int((self._clock() - began) * 1e6))

    async def _could_not(self, round: Round, error: UndoneError) -> None:
        """Go on after a decode that failed. Raises `StartError` if the target is broken."""
        verdict = self._failures.failed()
        logger.error("decode_failed", reason=str(error), requests=len(round.entries), then=verdict.name.lower())
        if verdict is Verdict.STOP:
            raise StartError("llama.cpp", f"({error})", f"it failed {BROKEN} times in a row, so this verifier ends")
        if verdict is Verdict.END:
            await self._put(self._messages(self._engine.give_up(round)))
        await asyncio.sleep(self._failures.wait_s)

    async def _rest(self) -> None:
        """Wait for news; after some rest measure the cost of rows again, if the machine was busy at the start."""
        after_s = self._remeasuring.after_s
        try:
            async with asyncio.timeout(after_s if after_s < math.inf else None):
                await self._news.wait()
        except TimeoutError:
            attempt = partial(self._remeasuring.attempt, self._news.is_set, self._clock)
            await asyncio.get_running_loop().run_in_executor(self._thread, attempt)

    def _time(self, decoded: Decoded, gains: list[Gain], began_s: float, waited_s: float) -> None:
        given = [len(gain.chunk.tokens) for gain in gains if gain.chunk is not None]
        now_s = self._clock()
        self._speed.ended(
            now_s=now_s,
            ms=(now_s - began_s) * 1000,
            idle_ms=waited_s * 1000,
            decode_ms=decoded.decode_ms,
            plain_ms=self._engine.costs(max(1, len(given))),
            requests=len(given),
            tokens=sum(given),
            prefill=decoded.round.prefill_rows > 0,
        )

    async def _wait_for_drafts(self, wait_ms: float) -> Round:
        """Plan again at each arrival, until a plan does not wait or `wait_ms` have passed."""
        deadline = self._clock() + wait_ms / 1000
        while (remaining := deadline - self._clock()) > 0 and not (self._draining or self._claims):
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._news.wait()
            self._news.clear()
            self._take_proposals()
            round = self._engine.plan()
            if not round.wait_ms:
                return round
        return self._engine.plan(may_wait=False)

    async def _arrange(self, batch: Batch) -> None:
        """Admit the claimed requests, assign drafters again, and tell the drafters."""
        loop = asyncio.get_running_loop()
        while self._claims:
            one = self._claims.take()
            misfit = one.refusal or self._engine.misfit(one.claim, one.output)
            if misfit:
                await self._turn_away(one.claim, len(one.output), misfit)
            else:
                admit = partial(self._engine.admit, one.claim, one.output, one.constraint)
                self._records.begin(await loop.run_in_executor(self._thread, admit), one.at_ns)
        self._listener.see()
        opened, closed = self._engine.reassign()
        for generation, name in closed:
            batch.hints.extend(hints.closing(generation, (name,)))
        device = self._loaded.device
        batch.hints.extend(
            hints.opening(one, name, self._engine, self._instance, device)
            for one, name in opened
            if self._engine.sharing.opens(one, name)
        )
        await self._put(batch)

    async def _put(self, batch: Batch) -> None:
        for name, _ in batch.hints:
            if name in self._engine.drafters:
                self._engine.drafters[name].was_asked()
        await self._committer.put(batch)

    async def _turn_away(self, claim: Claim, offset: int, detail: str) -> None:
        """End a request that this verifier cannot serve; `detail` tells its client why."""
        error = Chunk(tokens=(), finish=Finish.ERROR, detail=detail)
        append = Append(request_id=claim.job.request_id, epoch=claim.epoch, base=offset, chunk=error)
        with suppress(*DISCONNECTED):
            await self._store.commit([append])
        self._claims.done(claim.job.request_id)

    def _reap(self) -> Batch:
        """Drop requests that were cancelled or taken over, and end those whose deadline has passed."""
        batch = Batch()
        for generation in self._engine.expired():
            late = Append(
                request_id=generation.job.request_id, epoch=generation.claim.epoch, base=generation.offset, chunk=LATE
            )
            batch.appends.append((generation, late))
            self._records.saw(generation, LATE)
            self._end(generation, batch)
        for generation in [generation for generation in self._engine.running if generation.lost]:
            batch.hints.extend(self._drop(generation))
            self._claims.done(generation.job.request_id)
        return batch

    def _end(self, generation: Generation, batch: Batch) -> None:
        batch.hints.extend(self._drop(generation))
        batch.ended.append(generation.job.request_id)
        self._claims.ending(generation.job.request_id)

    def _drop(self, generation: Generation) -> list[Addressed]:
        self._engine.drop(generation)
        self._records.end(generation)
        return hints.closing(generation, tuple(generation.sessions))

    def _lose(self, generation: Generation, outcome: ScriptOutcome) -> None:
        if not generation.lost and generation in self._engine.running:
            logger.info("request_lost", request=generation.job.request_id, outcome=outcome)
            if outcome in (ScriptOutcome.STALE, ScriptOutcome.GAP, ScriptOutcome.GONE):
                self._engine.counters.add(f"lost_{outcome}", 1)
            generation.lose()
            self._news.set()

    def _messages(self, gains: list[Gain]) -> Batch:
        """The messages of a finished round: commits, renewals for unfinished prompts, and hints."""
        batch = Batch()
        for gain in gains:
            generation, chunk = gain.generation, gain.chunk
            request_id, epoch = generation.job.request_id, generation.claim.epoch
            if chunk is None:
                batch.renewals.append((generation, Renewal(request_id, epoch)))
                continue
            append = Append(request_id=request_id, epoch=epoch, base=gain.base, chunk=chunk)
            batch.appends.append((generation, append))
            self._records.saw(generation, chunk)
            if chunk.finish is not Finish.NONE:
                self._end(generation, batch)
                continue
            batch.hints.extend(hints.decided(gain, chunk.tokens, self._engine, self._instance, self._loaded.device))
        return batch

    async def _hand_back(self) -> None:
        await self._committer.flush()
        farewells: list[Addressed] = []
        for generation in list(self._engine.running):
            if not generation.lost:
                await self._store.release(generation.job.request_id, generation.claim.epoch)
            farewells += self._drop(generation)
        while self._claims:
            claim = self._claims.take().claim
            await self._store.release(claim.job.request_id, claim.epoch)
        await drafts.send(self._redis, farewells)
        await self._registry.leave(self._instance)

    def _take_proposals(self) -> None:
        for arrived_ms, proposals in self._listener.take():
            self._engine.take(proposals, arrived_ms)

    async def _stay_known(self) -> None:
        """Publish the card every few seconds and look for drafters more often, for ever."""
        reconnect = Reconnect("registry")
        while True:
            await reconnect.insist(self._tell)
            for _ in range(round(HEARTBEAT_S / LOOK_S)):
                await reconnect.insist(self._listener.look)
                await asyncio.sleep(LOOK_S)

    async def _tell(self) -> None:
        """Publish what others should know."""
        card = at_work(self._introduction, self._engine, self._speed, self._clock(), self._draining)
        card = replace(card, provisional=self._remeasuring.due)
        await self._registry.beat(card)
        await self._registry.remember(card)
        await self._store.ensure_group()
        await self._introductions.keeper.keep()
