"""The processes: Redis with persistence, two gateways, two verifiers, a model drafter and lookup, each behind a proxy.

A service that ends is started again, as an orchestrator does; one that ends without having been killed is written
down. Every process that was started here is gone at the end, and no other is touched.
"""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self, cast

import aiohttp
from redis.exceptions import RedisError

from services.launcher.fleet import embedded
from services.launcher.fleet.child import Child, Program, service_command
from services.launcher.fleet.ports import LOOPBACK, answers
from services.launcher.fleet.stack import is_ready
from shared.fleet.registry import Registry
from shared.model.model_source import model_name
from shared.process.lifecycle import GRACE_S
from shared.wire.broker import Broker, connect
from shared.wire.jobs import JobStore
from shared.wire.messages import Card, VerifierCard
from tests.chaos.proxy import Proxy
from tests.chaos.questions import N_CTX
from tests.chaos.records import End
from tests.patience import HANG_S
from tests.ports import free_port
from tests.refusals import DEBUG

LEASE_S: Final = 2.0
START_S: Final = 120.0  # loading and measuring a model beside others
_AGAIN_S: Final = 1.0  # from a service's end to its next start
_POLL_S: Final = 0.05


class Server:
    """A Valkey that writes everything down before it answers."""

    def __init__(self, folder: Path) -> None:
        self._place = embedded.place(LOOPBACK, 0)
        self._data = folder / "valkey"
        self._data.mkdir()
        program = embedded.program(self._place, self._data, dict(os.environ))
        command = (*program.command, *DEBUG, "--appendonly", "yes", "--appendfsync", "everysec")
        self._child = Child(
            Program(name="valkey", command=command, stage=1, environment=program.environment), folder / "valkey.log"
        )
        self.url = self._place.url
        self.port = self._place.port

    async def start(self) -> None:
        """Start with what was written down; returns when it answers."""
        await self._child.start()
        async with asyncio.timeout(HANG_S):
            while not await answers(self.port):  # noqa: ASYNC110 - another process starts
                await asyncio.sleep(_POLL_S)

    async def stop(self, *, gently: bool) -> None:
        """End it, by SIGTERM or SIGKILL."""
        if gently:
            self._child.terminate()
        else:
            self._child.kill()
        if self._child.pid:
            await self._child.wait()

    def wipe(self) -> None:
        """Lose what was written down. Only while it does not run."""
        shutil.rmtree(self._data / "appendonlydir", ignore_errors=True)


class Service:
    """One service behind a proxy of its own, started again whenever it ends."""

    def __init__(self, name: str, kind: str, options: Sequence[str], folder: Path, proxy: Proxy) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DRAFTMESH_LE")}
        environment["DRAFTMESH_REDIS"] = f"redis://{LOOPBACK}:{proxy.port}/0"
        program = Program(name=name, command=(*service_command(kind), *options), stage=0, environment=environment)
        self.name = name
        self.kind = kind
        self.proxy = proxy
        self.unasked: list[End] = []
        self._child = Child(program, folder / f"{name}.log")
        self._killed = False

    @property
    def pid(self) -> int:
        """Its process, 0 while none runs: a dead process is not the service, although its card still lies in Redis."""
        return self._child.pid if self._child.alive else 0

    async def run(self) -> None:
        """Keep it running until cancelled."""
        while True:
            await self._child.start()
            status = await self._child.wait()
            if not self._killed:
                now = asyncio.get_running_loop().time()
                self.unasked.append(End(name=self.name, moment=now, status=status, said=self._child.error_line()))
            self._killed = False
            await asyncio.sleep(_AGAIN_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self._child.alive:
            self._killed = self._killed or number is signal.SIGKILL
            os.kill(self.pid, number)

    async def end(self) -> str:
        """Ask it to end; says what was wrong about how it did, if anything."""
        self._child.terminate()
        try:
            async with asyncio.timeout(GRACE_S):
                status = await self._child.wait()
        except TimeoutError:
            return f"{self.name} did not end within {GRACE_S:.0f} s of SIGTERM"
        finally:
            self._child.kill()
        return f"{self.name} ended with {status} after SIGTERM: {self._child.error_line()}" if status else ""

    def said(self, event: str, **fields: str) -> int:
        """How many lines of its log tell of such an event."""
        count = 0
        for line in self._child.log.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                count += isinstance(entry, dict) and {"event": event, **fields}.items() <= entry.items()
        return count


class Fleet:
    """All processes. Use it as an async context manager; it is entered when requests can be served."""

    def __init__(self, target: Path, draft: Path, folder: Path, slots: int) -> None:
        """A verifier has `slots`; Redis' data and all logs lie in `folder`."""
        self._slots = slots
        self.server = Server(folder)
        self.services: dict[str, Service] = {}
        self.gateways: dict[str, str] = {}  # addresses by name
        self.model = model_name(target)
        self._folder = folder
        self._target = target
        self._draft = draft
        self._exits = AsyncExitStack()
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exits.aclose()

    async def _start(self) -> None:
        self._exits.push_async_callback(self.server.stop, gently=False)
        await self.server.start()
        self.broker: Broker = await self._exits.enter_async_context(connect(self.server.url))
        self.registry = Registry(self.broker.redis)
        self.store = JobStore(self.broker.redis, self.broker.blocking, self.model)
        self._exits.push_async_callback(self._kill_all)
        for name in ("gateway-1", "gateway-2"):
            port = free_port()
            self.gateways[name] = f"http://{LOOPBACK}:{port}"
            await self._add(name, "gateway", "--port", str(port))
        small = ("--ctx", str(N_CTX), "--parallel", str(self._slots), "--threads", "1")
        lease = ("--lease", str(LEASE_S), "--exactness", "strict")
        for name in ("verifier-1", "verifier-2"):
            await self._add(name, "verifier", "--target-model", str(self._target), *small, *lease)
            await self.until(lambda name=name: self.card(name), START_S)  # type: ignore[misc]
        await self._add("lookup", "drafter")
        await self._add("drafter", "drafter", "--draft-model", str(self._draft), *small)
        self.http = await self._exits.enter_async_context(aiohttp.ClientSession())
        await self.until(self.whole, START_S)

    async def _add(self, name: str, kind: str, *options: str) -> None:
        proxy = await self._exits.enter_async_context(Proxy(LOOPBACK, self.server.port))
        service = Service(name, kind, options, self._folder, proxy)
        self.services[name] = service
        self._keepers.append(asyncio.create_task(service.run(), name=name))

    def of_kind(self, kind: str) -> list[Service]:
        """All services that are gateways, verifiers or drafters."""
        return [service for service in self.services.values() if service.kind == kind]

    async def card(self, name: str) -> Card | None:
        """The card of the process that is this service now."""
        cards = await self.registry.list()
        return next((card for card in cards if card.pid == self.services[name].pid), None)

    async def whole(self) -> bool:
        """Whether everybody is there, the verifiers know the drafters, and gateways take requests."""
        pids = {service.pid for service in self.services.values()}
        cards = [card for card in await self.registry.list() if card.pid in pids]
        verifiers = [card for card in cards if isinstance(card, VerifierCard)]
        drafters = {card.id for card in cards if card.pid in {one.pid for one in self.of_kind("drafter")}}
        if len(cards) < len(self.services) or any(
            drafters - {counts.drafter for counts in card.drafters} for card in verifiers
        ):
            return False
        return all([await is_ready(self.http, url) for url in self.gateways.values()])

    async def until(self, condition: Callable[[], Awaitable[object]], within_s: float) -> bool:
        """Wait for a condition, through outages of Redis; whether it came true in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    with suppress(RedisError, OSError):
                        if await condition():
                            return True
                    await asyncio.sleep(_POLL_S)
        return False

    async def left_over(self) -> list[str]:
        """Keys without a TTL, live jobs and undelivered or unacknowledged entries: nothing, once all requests ended."""
        redis = cast(Any, self.broker.redis)
        found = [f"live job {name}" for name in await self.store.live()]
        for key in await redis.keys("*"):
            name = key.decode()
            if await redis.pttl(key) == -1:
                found.append(f"no TTL on {name}")
            if name.startswith("draftmesh:jobs:"):
                found += [f"entry {entry.decode()} of {name}" for entry, _ in await redis.xrange(key)]
        return found

    async def end_all(self) -> list[str]:
        """Ask every service to end, and say what was wrong about it."""
        await self._cancel_keepers()
        said = await asyncio.gather(*(service.end() for service in self.services.values()))
        return [line for line in said if line]

    async def _kill_all(self) -> None:
        await self._cancel_keepers()
        for service in self.services.values():
            service.signal(signal.SIGKILL)

    async def _cancel_keepers(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._keepers.clear()
