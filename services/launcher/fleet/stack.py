"""A private fleet for the demo and the benchmark: on free ports, with cores of its own for each process.

It stops every process that it started, on success, error, Ctrl-C and SIGTERM, and touches no other.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp

from services.launcher.fleet import embedded
from services.launcher.fleet.child import Child, Program, service_command
from services.launcher.fleet.cores import Cores, forking_on
from services.launcher.fleet.ports import LOOPBACK, answers, claim_embedded
from services.launcher.fleet.starting import PHASE_LINES, phase
from shared.fleet.registry import HEARTBEAT_S, Registry
from shared.folders import cache_folder
from shared.process.lifecycle import GRACE_S
from shared.settings import settings_file
from shared.settings.command_line import INTERRUPTED
from shared.wire.broker import connect
from shared.wire.messages import DrafterCard, VerifierCard

Found = TypeVar("Found", VerifierCard, DrafterCard)

START_S: Final = 600.0  # loading and calibrating 0.7 B parameters on a busy machine; after that, something hangs
POLL_S: Final = 0.05


class StackError(RuntimeError):
    """A process of the private fleet did not start or died; the message holds the end of its log."""


@dataclass(eq=False)
class Stack:
    """Valkey, gateway and verifier for one target model; drafters come and go. Use it as an async context manager.

    The verifier runs on `engine_cores`, everything else on `side_cores`; empty means anywhere. With cores in common
    target and drafters share them as in any fleet.
    """

    target: Path
    _: KW_ONLY
    engine_cores: Cores
    side_cores: Cores
    ctx: int = 1024
    fresh: bool = False  # measure the cost of rows again instead of using an earlier measurement
    parallel: int = 1
    exactness: str = "law"
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what stands in for a service, by its name
    gateway_options: Sequence[str] = ()
    gateway_cores: Cores | None = None  # None: the side's
    say: Callable[[str], object] = lambda phase: None  # gets lines about what a start waits for

    def __post_init__(self) -> None:
        self._closing = AsyncExitStack()
        self._children: list[Child] = []
        self._started = 0

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def _start(self) -> None:
        self._folder = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="draftmesh-")))
        self._closing.push_async_callback(self._stop_all)
        server = embedded.place(LOOPBACK, 0)
        # Drops the options that the user set for other fleets.
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAFTMESH_")}
        self._environment["DRAFTMESH_REDIS"] = server.url
        self._environment[settings_file.VARIABLE] = settings_file.OFF
        self._environment["DRAFTMESH_CACHE"] = str(self._folder if self.fresh else cache_folder())
        self.redis = server.url
        self.valkey = await self._run(embedded.program(server, self._folder, self._environment), self.side_cores)
        await self._until(lambda: answers(server.port))
        broker = await self._closing.enter_async_context(connect(server.url))
        self.registry = Registry(broker.redis)
        port = claim_embedded(0)
        self.url = f"http://{LOOPBACK}:{port}"
        gateway = (*self._command("gateway"), "--port", str(port), *self.gateway_options)
        cores = self.side_cores if self.gateway_cores is None else self.gateway_cores
        self.gateway = await self._service("gateway", gateway, cores)
        options = {
            "--target-model": self.target,
            "--exactness": self.exactness,
            "--threads": self._threads(self.engine_cores),
            "--parallel": self.parallel,
            "--ctx": self.ctx,
        }
        command = (*self._command("verifier"), *(str(word) for option in options.items() for word in option))
        self.verifier = await self._service("verifier", command, self.engine_cores)
        await self._until(self.verifier_card)
        self.http = await self._closing.enter_async_context(
            aiohttp.ClientSession(self.url, timeout=aiohttp.ClientTimeout(total=None, sock_read=START_S))
        )
        await self._until(lambda: is_ready(self.http, self.url))

    def _threads(self, cores: Cores) -> int:
        """How many threads a model on these cores is told to take; 0: it finds its share."""
        return 0 if set(self.engine_cores) & set(self.side_cores) else len(cores)

    def _command(self, service: str) -> Sequence[str]:
        return self.commands.get(service) or service_command(service)

    async def _run(self, program: Program, cores: Cores) -> Child:
        self._started += 1
        child = Child(program, self._folder / f"{self._started:02d}-{program.name}.log")
        self._children.append(child)
        with forking_on(cores):
            await child.start()
        return child

    async def _service(self, name: str, command: Sequence[str], cores: Cores, redis: str = "") -> Child:
        environment = self._environment | ({"DRAFTMESH_REDIS": redis} if redis else {})
        return await self._run(Program(name=name, command=tuple(command), stage=0, environment=environment), cores)

    async def start_drafter(self, model: Path | None, *, command: Sequence[str] = (), redis: str = "") -> Child:
        """Start a drafter, the lookup drafter without a model, and return once the fleet sees it.

        `command` stands in for the drafter and takes its options; `redis` is another way to the server.
        """
        options = ("--draft-model", str(model) if model else "", "--threads", str(self._threads(self.side_cores)))
        command = (*(command or self._command("drafter")), *options)
        child = await self._service("drafter", command, self.side_cores, redis)
        await self._until(lambda: self._card(child, DrafterCard))
        return child

    async def stop_drafter(self, child: Child) -> None:
        """Stop a drafter and return once the fleet no longer sees it."""
        await self._stop(child)

        async def gone() -> bool:
            return await self._card(child, DrafterCard) is None

        await self._until(gone)

    async def _stop(self, child: Child) -> None:
        if child in self._children:
            self._children.remove(child)
        child.terminate()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await child.wait()
        finally:  # also if the wait itself is cancelled, so that a second Ctrl-C leaves no orphan
            if child.alive:
                child.kill()
                await child.wait()

    async def _stop_all(self) -> None:
        try:
            while self._children:
                await self._stop(self._children[-1])
        finally:
            for child in self._children:
                child.kill()

    async def verifier_card(self) -> VerifierCard | None:
        """The verifier's latest heartbeat."""
        return await self._card(self.verifier, VerifierCard)

    async def settled_card(self) -> VerifierCard:
        """The verifier's card after a heartbeat that follows the last answer. Raises `StackError` if it is gone."""
        await asyncio.sleep(HEARTBEAT_S + 0.3)
        card = await self.verifier_card()
        if card is None:
            raise StackError("the verifier left the fleet")
        return card

    async def drafter_id(self, child: Child) -> str:
        """The name under which the fleet knows a drafter: the `source` in a trace."""
        card = await self._card(child, DrafterCard)
        if card is None:
            raise StackError("the drafter left the fleet")
        return card.id

    async def _card(self, child: Child, kind: type[Found]) -> Found | None:
        for card in await self.registry.list():
            if isinstance(card, kind) and card.pid == child.pid:
                return card
        return None

    async def _until(self, condition: Callable[[], Coroutine[Any, Any, object]]) -> None:
        limit = time.monotonic() + START_S
        while not await condition():
            for child in self._children:
                if not child.alive:
                    raise StackError(f"the {child.program.name} ended ({child.cause_of_death()})")
                if told := phase(child.last_lines(PHASE_LINES)):
                    self.say(f"{child.program.name}: {told}")
            if time.monotonic() > limit:
                raise StackError(f"the private fleet was not ready within {START_S:.0f} s")
            await asyncio.sleep(POLL_S)


def run_to_end(main: Coroutine[Any, Any, int]) -> int:
    """Run `main`; Ctrl-C and SIGTERM cancel it, so that its clean-up runs. Returns its status, or `INTERRUPTED`."""

    async def supervised() -> int:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return INTERRUPTED

    return asyncio.run(supervised())


async def is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    """Ask the gateway at `url`; one that does not answer is not ready."""
    return await readiness(http, url) is not None


async def readiness(http: aiohttp.ClientSession, url: str) -> dict[str, Any] | None:
    """What the gateway at `url` says of itself once it is ready; None before."""
    try:
        async with http.get(f"{url}/ready") as response:
            return await response.json() if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
