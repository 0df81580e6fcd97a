"""The whole system under a seeded schedule of faults, in one thread and in virtual time: `run(seed)` is repeatable.

A gateway, two verifiers and three drafters, as in production but for the toy model, HTTP and the wire. For the first
seconds processes are killed between any two steps, stopped, cut off or asked to drain, and the network loses, delays
and repeats; Redis restarts, refuses writes for a while or loses one of its keys; meanwhile clients come, and some
leave. Then the faults end, and all that began must end, too.
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
from services.drafter.worker import DrafterWorker as Drafter
from services.gateway.errors import ApiError
from services.gateway.generation.choice import Delta, Finished
from services.gateway.generation.generator import Generator
from services.gateway.generation.limits import Limits
from services.gateway.generation.preparation import Prepared, Reading
from services.gateway.storage.follow import LogFollower
from services.verifier.worker import VerifierWorker as Verifier
from shared.fleet.registry import Registry
from shared.process import lifecycle
from shared.wire import keys
from shared.wire.messages import GatewayCard, Job, Speculation
from tests.simulation import network, partners, promises
from tests.simulation.asks import MODEL, Ask, draw_ask, draw_weather
from tests.simulation.network import CALM, Link, Weather
from tests.simulation.partners import Guesser
from tests.simulation.virtual import Process, VirtualLoop
from tests.toys import drafter_card

LEASE_MS: Final = 1500
LIMIT: Final = 8
SLOTS: Final = 2
HORIZON_S: Final = 60.0  # of virtual time; most runs take less than ten
EPOCH_S: Final = 1_700_000_000.0  # Redis's clock at the start


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
        self._storm = draw_weather(self.random)
        self._server = network.server(self.loop, self.random, self._sky)
        self._server.tell = tell
        self._front: tuple[Process, Generator] | None = None
        self._verifiers: dict[Process, Verifier] = {}
        self._drafters: dict[Process, Proposer] = {}
        self._over = asyncio.Event()
        self._forgotten = ""  # the key that Redis lost
        self.asks = [draw_ask(self.random, number) for number in range(self.random.randint(1, 3))]

    def wall_clock(self) -> float:
        """Redis's."""
        return EPOCH_S + self.loop.time()

    # ------------------------------------------------------------ what the seed decides

    def _sky(self) -> Weather:
        return self._storm if self.loop.time() < self._storm_s else CALM

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
                promises.check_end(task, process.name)
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
        if self.random.random() < 0.5:
            self._server.later(self.random.uniform(0, self._storm_s), self._forget)
        if self.random.random() < 0.1:
            self._server.later(self.random.uniform(0, self._storm_s), self._refuse)
        while not all(client.done() for client in clients) or self.loop.time() < self._storm_s or not self._settled():
            await asyncio.sleep(0.1)
            for task in (*keepers, *clients):
                if task.done():
                    task.result()
        self._check()

    def _forget(self) -> None:
        self._forgotten = self._server.forget()
        self._tell(f"Redis loses {self._forgotten}")

    def _refuse(self) -> None:
        """For a moment, or for longer than cards live."""
        self._server.refuses = True
        self._server.later(self.random.choice([0.3, 1.0, 12.0]), self._accept)

    def _accept(self) -> None:
        self._server.refuses = False

    def _lost(self, job: Job) -> bool:
        """Whether its hash or its log was lost, which nothing can bring back."""
        return self._forgotten in (keys.job(job.request_id), keys.log(job.request_id))

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
        report, redis = self.report, self._server.redis
        for ask in self.asks:
            whole = [job for job in ask.jobs if not self._lost(job)]
            promises.check_ask(ask, lost=len(whole) < len(ask.jobs))
            report.finishes += filter(None, (promises.check_log(redis, job) for job in whole))
        promises.check_server(redis)
        promises.check_loop(self.loop.failures)
        report.virtual_s, report.commands, report.trace = self.loop.time(), self._server.commands, self._server.trace
        report.fates = [ask.fate for ask in self.asks]


def _piece(token: int) -> bytes:
    return b"<%d>" % token


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
    """One run, the same for the same seed. Raises `Broken` or `Stuck`; `tell` hears of what happens."""
    system = System(seed, folder, tell)
    with _frozen(system), nullcontext() if tell else _silent():
        system.loop.run(system.main())
    return system.report
