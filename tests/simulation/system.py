"""The whole system under a seeded schedule of faults, in one thread and in virtual time: `run(seed)` is repeatable.

A gateway, two verifiers and three drafters, as in production but for the toy model, HTTP and the wire. For the first
seconds processes are killed between any two steps, stopped, cut off or asked to drain, and the network loses, delays
and repeats; meanwhile clients come, and some leave. Then the faults end, and all that began must end, too.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest import mock

import structlog

from services.drafter.lookup_proposer import LookupProposer
from services.drafter.proposer import Proposer
from services.drafter.worker import Worker as Drafter
from services.gateway.errors import ApiError
from services.gateway.generation import Delta, Finished
from services.gateway.generator import Generator
from services.gateway.limits import Limits
from services.gateway.preparation import Prepared, Reading
from services.verifier.worker import Worker as Verifier
from shared import keys, lifecycle
from shared.broker import DISCONNECTED
from shared.follow import LogFollower
from shared.jobs import parse_entry
from shared.messages import Finish, GatewayCard, Job, Sampling, Speculation
from shared.registry import Registry
from tests.simulation import network, partners
from tests.simulation.network import CALM, Link, Weather
from tests.simulation.partners import Guesser, reference
from tests.simulation.virtual import Process, VirtualLoop
from tests.toys import EOG, drafter_card

MODEL: Final = "toy"
LEASE_MS: Final = 1500
LIMIT: Final = 8
SLOTS: Final = 2
HORIZON_S: Final = 60.0  # of virtual time; most runs take less than ten
TIMEOUT_MS: Final = 3_600_000
EPOCH_S: Final = 1_700_000_000.0  # Redis's clock at the start


class Broken(AssertionError):
    """A promise was not kept."""


@dataclass(slots=True)
class Ask:
    """One client: what it asks, when it comes and leaves, and what became of it."""

    jobs: tuple[Job, ...]
    caller: str
    arrives_s: float
    leaves_s: float | None
    stop: tuple[int, ...]  # the token, per choice, that ends the answer like a stop string; or none
    tokens: list[list[int]]
    ends: list[str]  # per choice its finish reasons
    fate: str = ""  # "answered", "left", "cut" (its gateway died), or the code of an error


@dataclass(slots=True)
class Report:
    """What happened in a run."""

    seed: int
    fates: list[str] = field(default_factory=list)
    deaths: int = 0
    finishes: list[str] = field(default_factory=list)
    virtual_s: float = 0.0
    commands: int = 0
    trace: int = 0  # of every command and its moment: equal for equal runs


class System:
    def __init__(self, seed: int, folder: Path, tell: Callable[[str], object] | None = None) -> None:
        self.random = random.Random(seed)
        self.report = Report(seed)
        self.loop = VirtualLoop(HORIZON_S)  # type: ignore[abstract] # all that asyncio itself asks for is there
        self._path = folder / "toy.gguf"
        self._storm_s = self.random.uniform(0.3, 2.5)
        self._storm = self._weather()
        self._server = network.server(self.loop, self.random, self._sky)
        self._server.tell = tell
        self._front: tuple[Process, Generator] | None = None
        self._verifiers: dict[Process, Verifier] = {}
        self._drafters: dict[Process, Proposer] = {}
        self._over = asyncio.Event()
        self.asks = [self._ask(number) for number in range(self.random.randint(1, 3))]

    def wall_clock(self) -> float:
        """Redis's."""
        return EPOCH_S + self.loop.time()

    # ------------------------------------------------------------ what the seed decides

    def _weather(self) -> Weather:
        severity = self.random.choice([0.0, 0.3, 1.0, 3.0])
        return Weather(
            lost=0.02 * severity,
            silent=0.03 * severity,
            late=0.02 * severity,
            hop_ms=self.random.choice([0.5, 3.0, 20.0]),
        )

    def _sky(self) -> Weather:
        return self._storm if self.loop.time() < self._storm_s else CALM

    def _ask(self, number: int) -> Ask:
        source = self.random
        prompt = (*range(5, 5 + source.choice([3, 3, 8, 24])), source.randrange(20, 24))
        ending = source.random() < 0.3  # answers that may end by themselves
        choices = source.choice([1, 1, 1, 2])
        timeout_ms = source.choice([*[TIMEOUT_MS] * 9, source.randint(100, 3000)])
        jobs = tuple(
            Job(
                request_id=f"r{number}-{choice}",
                model=MODEL,
                prompt=prompt,
                sampling=Sampling(seed=source.randrange(3), logit_bias=() if ending else ((EOG, -100.0),)),
                max_tokens=source.randint(1, 12),
                speculation=source.choice([Speculation.AUTO, Speculation.ALWAYS, Speculation.OFF]),
                timeout_ms=timeout_ms,
            )
            for choice in range(choices)
        )
        stops: tuple[int, ...] = ()
        if source.random() < 0.2:
            stops = (source.randrange(2, 63),)
        arrives = source.uniform(0.0, 1.5)
        leaves = arrives + source.uniform(0.0, 1.0) if source.random() < 0.2 else None
        return Ask(jobs, "ab"[number % 2], arrives, leaves, stops, [[] for _ in jobs], ["" for _ in jobs])

    # ------------------------------------------------------------ processes

    async def _keep(self, name: str, main: Callable[[Process, Link, asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        """Start a process again and again, as a supervisor does, and let the seed decide what becomes of each."""
        for incarnation in range(1000):
            process = Process(
                self.loop, f"{name}.{incarnation}", self.random.uniform(0, 1e5), self.random.uniform(0.9, 1.1)
            )
            link = Link(self._server, process)
            stop = asyncio.Event()
            task = process.start(main(process, link, stop), process.name)
            fate = self.loop.create_task(self._decide(process, link, stop))
            gone = self.loop.create_task(process.ended.wait())
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            fate.cancel()
            gone.cancel()
            if not process.alive:
                self._tell(f"{process.name} was killed")
                self.report.deaths += 1
            else:
                process.kill()
                _check_end(task, process.name)
            await asyncio.sleep(self.random.uniform(0.05, 0.5))

    def _tell(self, what: str) -> None:
        if self._server.tell is not None:
            self._server.tell(f"{self.loop.time()} {what}")

    async def _decide(self, process: Process, link: Link, stop: asyncio.Event) -> None:
        source, left = self.random, self._storm_s - self.loop.time()
        if left <= 0:
            return
        fate = source.choice(["lives", "lives", "dies", "dies", "stops", "cut", "drains"])
        if fate == "lives":
            return
        if fate == "dies":
            process.dies_after = int(2 ** source.uniform(0, 9))
            return
        await asyncio.sleep(source.uniform(0, left))
        pause_s = source.uniform(0.1, 4.0)
        self._tell(f"{process.name} {fate}")
        if fate == "drains":
            stop.set()
        elif fate == "cut":
            link.cut = True
            await asyncio.sleep(pause_s)
            link.cut = False
        else:
            process.stop()
            await asyncio.sleep(pause_s)
            process.resume()

    async def _gateway(self, process: Process, link: Link, stop: asyncio.Event) -> None:
        follower = LogFollower(link.broker.redis, link.broker.blocking, process.name)
        card = GatewayCard(id=process.name, host="h", pid=1, url="", streams=0)
        self._front = process, Generator(link.broker, follower, process.name, Limits(requests=LIMIT))
        async with asyncio.TaskGroup() as group:
            group.create_task(follower.run())
            group.create_task(lifecycle.heartbeat(Registry(link.broker.redis), lambda: card))

    async def _verifier(self, process: Process, link: Link, stop: asyncio.Event) -> None:
        target = partners.loaded(self._path, process.spend, SLOTS)
        worker = Verifier(link.broker, target, Speculation.AUTO, process.name, LEASE_MS, clock=process.clock)
        self._verifiers[process] = worker
        await worker.run(stop)

    async def _drafter(self, process: Process, link: Link, stop: asyncio.Event) -> None:
        number = int(process.name[1])
        proposer: Proposer = LookupProposer()
        if number:
            proposer = Guesser(0.9 if number == 1 else 0.4, self.random, process.spend)
        self._drafters[process] = proposer
        card = drafter_card(process.name, "model" if number else "lookup", f"m{number}")
        await Drafter(link.broker, proposer, card).run(stop)

    # ------------------------------------------------------------ clients

    async def _client(self, ask: Ask) -> None:
        await asyncio.sleep(ask.arrives_s)
        while self._front is None or not self._front[0].alive:  # noqa: ASYNC110 - as a client does
            await asyncio.sleep(0.05)  # connection refused
        process, generator = self._front
        handler = process.start(self._handle(generator, ask), "handler")
        dead = self.loop.create_task(process.ended.wait())
        limit = None if ask.leaves_s is None else max(0.0, ask.leaves_s - self.loop.time())
        await asyncio.wait({handler, dead}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if not handler.done() and process.alive:
            handler.cancel()  # as aiohttp does when the connection closes
            await asyncio.wait({handler, dead}, return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        if not handler.done():
            ask.fate = "cut"
        elif handler.cancelled():
            ask.fate = "left"
        else:
            ask.fate = handler.result()

    async def _handle(self, generator: Generator, ask: Ask) -> str:
        reading = Reading(piece=_piece, stops=tuple(_piece(token).decode() for token in ask.stop))
        model = SimpleNamespace(name=MODEL, n_cells=10_000)
        prepared = Prepared(
            model=cast(Any, model), lexicon=cast(Any, None), jobs=ask.jobs, choices=len(ask.jobs), reading=reading
        )
        try:
            async with generator.run(prepared, ask.caller) as answer:
                while answer.open:
                    for event in await answer.read(10.0):
                        if isinstance(event, Delta):
                            ask.tokens[event.choice] += [piece.token for piece in event.pieces]
                        elif isinstance(event, Finished):
                            ask.ends[event.choice] += event.reason
        except ApiError as error:
            return error.code or "error"
        return "answered"

    # ------------------------------------------------------------ the run

    async def main(self) -> None:
        services = {"g0": self._gateway, "v0": self._verifier, "v1": self._verifier}
        services |= {f"d{number}": self._drafter for number in range(3)}
        keepers = [self.loop.create_task(self._keep(name, service)) for name, service in services.items()]
        clients = [self.loop.create_task(self._client(ask)) for ask in self.asks]
        if self.random.random() < 0.3:
            self._server.later(self.random.uniform(0, self._storm_s), self._server.restart)
        while not all(client.done() for client in clients) or self.loop.time() < self._storm_s or not self._settled():
            await asyncio.sleep(0.1)
            for task in (*keepers, *clients):
                if task.done():
                    task.result()
        self._check()

    def _settled(self) -> bool:
        """Nobody works on anything any more."""
        redis = self._server.redis
        if redis.xlen(keys.jobs(MODEL)) or redis.zcard(keys.admitted(MODEL)):
            return False
        if redis.zcard(keys.lanes(MODEL)) or redis.hlen(keys.shares(MODEL)):
            return False
        if any(worker._engine.running for process, worker in self._verifiers.items() if process.alive):
            return False
        return not any(proposer.sessions for process, proposer in self._drafters.items() if process.alive)

    def _check(self) -> None:
        redis = self._server.redis
        for ask in self.asks:
            self._check_ask(ask)
            for job in ask.jobs:
                self._check_log(job)
        groups = redis.xinfo_groups(keys.jobs(MODEL)) if redis.exists(keys.jobs(MODEL)) else []
        pending = sum(group["pending"] for group in groups)
        _must(not pending, f"{pending} jobs are pending")
        for key in redis.keys("*"):
            _must(redis.pttl(key) > 0, f"{key.decode()} never expires")
        _must(not self.loop.failures, f"failures: {self.loop.failures[:1]}")
        report = self.report
        report.virtual_s, report.commands, report.trace = self.loop.time(), self._server.commands, self._server.trace
        report.fates = [ask.fate for ask in self.asks]

    def _check_ask(self, ask: Ask) -> None:
        for job, tokens, end in zip(ask.jobs, ask.tokens, ask.ends, strict=True):
            whole = reference(job.prompt, job.sampling, job.max_tokens)
            stopped = next((index for index, token in enumerate(whole) if token in ask.stop), None)
            expected = list(whole if stopped is None else whole[: stopped + 1])
            _must(tokens == expected[: len(tokens)], f"{job.request_id}: {tokens} instead of {expected}")
            if ask.fate == "answered":
                _must(tokens == expected, f"{job.request_id}: {tokens} is not all of {expected}")
                stop = stopped is not None or len(whole) < job.max_tokens
                _must(end in (("stop",) if stop else ("length", "stop")), f"{job.request_id}: ended {end!r}")
        allowed = ["answered", "cut", "left", "service_unavailable", "generation_failed"]
        if ask.jobs[0].timeout_ms < TIMEOUT_MS:
            allowed.append("deadline_exceeded")
        _must(ask.fate in allowed, f"{ask.jobs[0].request_id}: {ask.fate}")

    def _check_log(self, job: Job) -> None:
        redis = self._server.redis
        state, submitted = redis.hmget(keys.job(job.request_id), "state", "payload")
        if submitted is None:
            return  # at most cancelled before it came
        log = [parse_entry(*entry) for entry in redis.xrange(keys.log(job.request_id))]
        tokens = [token for _, chunk in log for token in chunk.tokens]
        whole = reference(job.prompt, job.sampling, job.max_tokens)
        _must(tuple(tokens) == whole[: len(tokens)], f"{job.request_id}: the log is {tokens}")
        reached = 0
        for base, chunk in log:
            _must(base == reached, f"{job.request_id}: a chunk at {base} instead of {reached}")
            reached += len(chunk.tokens)
        ends = [chunk.finish for _, chunk in log if chunk.finish is not Finish.NONE]
        _must(len(ends) == 1 and log[-1][1].finish is ends[0], f"{job.request_id}: ends {ends}")
        _must(state in (b"finished", b"cancelled"), f"{job.request_id}: {state}")
        if ends[0] in (Finish.STOP, Finish.LENGTH):
            _must(tuple(tokens) == whole, f"{job.request_id}: the log lacks a part of {whole}")
        self.report.finishes.append(ends[0])


def _piece(token: int) -> bytes:
    return b"<%d>" % token


def _must(holds: object, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def _check_end(task: "asyncio.Task[None]", name: str) -> None:
    """A process may end because it was asked to, or because Redis was away while it started; it may not fail."""
    error = task.exception()
    if error is None or not _unexpected(error):
        return
    raise Broken(f"{name} failed") from error


def _unexpected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_unexpected, error.exceptions))
    return not isinstance(error, DISCONNECTED)


@contextmanager
def _frozen(system: System) -> Iterator[None]:
    """Redis's time is virtual, what is random elsewhere comes from the seed, and cards say the same in any process."""
    state = random.getstate()
    random.seed(system.report.seed)
    try:
        with mock.patch.object(time, "time", system.wall_clock), mock.patch.object(os, "getpid", return_value=1):
            yield
    finally:
        random.setstate(state)


@contextmanager
def _silent() -> Iterator[None]:
    """Nobody reads the logs of thousands of runs."""
    configured = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**configured)


def run(seed: int, folder: Path, tell: Callable[[str], object] | None = None) -> Report:
    """One run; raises `Broken` or `Stuck`, and does the same for the same seed. `tell` hears of what happens."""
    system = System(seed, folder, tell)
    with _frozen(system), nullcontext() if tell else _silent():
        system.loop.run(system.main())
    return system.report
