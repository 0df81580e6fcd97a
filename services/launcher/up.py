"""`draftmesh up`: a whole fleet on this machine, ready or explained, and nothing of it left when it ends."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from rich.console import Console

from services.launcher import fetching, hardware, payoff, plan, ports
from services.launcher.child import Child
from services.launcher.display import Display
from services.launcher.plan import Plan, Wishes
from services.launcher.readiness import is_ready
from services.launcher.run_file import Run, RunFile, recorded
from services.launcher.service_options import Handed
from services.launcher.supervisor import ChildFailed, Supervisor
from shared import config, devices
from shared.broker import BLOCK_MS, DISCONNECTED, BrokerError, connect
from shared.errors import StartError
from shared.messages import Card, VerifierCard
from shared.registry import Registry
from shared.usage import BAD_OPTION

_POLL_S: Final = 0.1  # how often readiness is asked; a start takes seconds
_VALKEY_S: Final = 10.0  # it is ready in 50 ms
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(wishes: Wishes, own_variables: Sequence[str], handed: Handed) -> int:
    """Run the fleet until SIGINT or SIGTERM; the exit status. Raises `StartError` before anything is started.

    `own_variables` are the environment twins of our options: children get what was decided, not what was written, and
    of `draftmesh.toml` they get what was `handed` down, so they read none.
    """
    console = Console(stderr=True, highlight=False)
    display = Display(console)
    environment = {name: value for name, value in os.environ.items() if name not in own_variables}
    environment[config.VARIABLE] = config.OFF
    folder = Path(tempfile.mkdtemp(prefix="draftmesh-"))
    code = 0
    try:

        def resolve(spec: str, option: str) -> Path:
            return fetching.find(spec, option, console)

        made = plan.make(wishes, hardware.look(), devices.available_cores(), resolve, folder, environment, handed)
        with ExitStack() as stack:
            file = _recorded(stack, made, folder, display)
            code = asyncio.run(Fleet(made, folder, display).run())
            if code == 1 and file:
                file.keep()
    finally:
        if code != 1:  # else the logs are all that tells what happened
            shutil.rmtree(folder, ignore_errors=True)
    if code == 1:
        display.say(f"logs are kept in {folder}; `draftmesh logs` shows them")
    return code


def _recorded(stack: ExitStack, made: Plan, folder: Path, display: Display) -> RunFile | None:
    """Let other commands find this fleet; where that cannot be written down, they have to be told."""
    run = Run(pid=os.getpid(), gateway=made.url, redis=made.redis, logs=str(folder), started=time.time())
    try:
        return stack.enter_context(recorded(run))
    except OSError as error:
        display.say(f"status and other commands will need --redis, since this cannot be written: {error}", "yellow")
        return None


class Fleet:
    """The processes of one `up`."""

    def __init__(self, fleet_plan: Plan, folder: Path, display: Display) -> None:
        self._plan = fleet_plan
        self._folder = folder
        self._display = display
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Start, announce, wait for a signal, stop: 0, or the status that a failed child demands."""
        self._supervisor = Supervisor(self._folder, self._display.state)
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup's wish
                loop.add_signal_handler(number, self._asked)
        code = 0
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._live(), name="fleet")
                await self._stop.wait()
                watching.cancel()
        except* (ChildFailed, StartError) as failures:
            error = _first(failures)
            self._display.close()
            self._display.say(f"error: {error}", "red")
            code = error.exit_code if isinstance(error, ChildFailed) else BAD_OPTION
        finally:
            self._display.close()
            await self._supervisor.stop()
        if code != BAD_OPTION:  # an error in a command line is one line, and nothing ran
            self._display.say("stopped")
        return code

    def _asked(self) -> None:
        if self._stop.is_set():
            self._supervisor.hurry()
        self._stop.set()

    async def _live(self) -> None:
        """Start everything and watch it until cancelled."""
        self._display.open()
        for note in self._plan.notes:
            self._display.say(note)
        # A group of its own: cancelling it ends the watching of children that are about to be stopped.
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervisor.keep_logs_short(), name="logs")
            verifier = await self._start(group)
            await self._ready(verifier)
            await asyncio.Event().wait()

    async def _start(self, group: asyncio.TaskGroup) -> Child:
        if self._plan.valkey:
            await self._supervisor.start(self._plan.valkey, group)
            await self._valkey_answers()
            self._display.state("valkey", "ready")
        else:
            async with connect(self._plan.redis):
                pass  # an address that does not answer is told now, once, instead of by every child
        verifier = await self._supervisor.start(self._plan.verifier, group)
        for program in (self._plan.gateway, *self._plan.drafters):
            await self._supervisor.start(program, group)
        return verifier

    async def _valkey_answers(self) -> None:
        port = urlsplit(self._plan.redis).port or 0
        deadline = asyncio.get_running_loop().time() + _VALKEY_S
        while not await ports.answers(port):
            if asyncio.get_running_loop().time() > deadline:
                raise ChildFailed("valkey", f"no answer on port {port} within {_VALKEY_S:.0f} s", 1)
            await asyncio.sleep(0.02)

    async def _ready(self, verifier: Child) -> None:
        """Wait, however long the models take to load, until the gateway takes requests; then say so."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            while not await is_ready(http, self._plan.url):  # noqa: ASYNC110 - it becomes ready in another process
                await asyncio.sleep(_POLL_S)
        cards = await self._cards()
        self._supervisor.report_ready({card.pid for card in cards})
        self._display.close()
        card = next((card for card in cards if isinstance(card, VerifierCard) and card.pid == verifier.pid), None)
        if card:
            note = f" ({card.exactness_note})" if card.exactness_note else ""
            self._display.say(f"exactness: {card.exactness}{note}")
            self._display.say(payoff.verdict(dict(card.row_ms)))
            for drafter, reason in card.refused:
                self._display.say(f"refused drafter {drafter}: {reason}", "red")
        self._display.say(f"logs are in {self._folder} (`draftmesh logs` shows them); Ctrl-C stops everything")
        sys.stdout.write(announcement(self._plan.url, card.model if card else "default", self._plan.shared_redis))
        sys.stdout.flush()

    async def _cards(self) -> list[Card]:
        """Cards of this machine's processes; none if Redis does not answer just now."""
        try:
            async with asyncio.timeout(BLOCK_MS / 1000), connect(self._plan.redis) as broker:
                return [card for card in await Registry(broker.redis).list() if card.host == socket.gethostname()]
        except (*DISCONNECTED, BrokerError):
            return []


def announcement(url: str, model: str, shared_redis: str) -> str:
    """The ready line and a request to paste; a command for spare machines if they can reach our Redis."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Why is the sky blue?"}]})
    quoted = body.replace("'", "'\\''")
    request = f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{quoted}'"
    join = f"on a spare machine: draftmesh join {shared_redis}\n" if shared_redis else ""
    return f"draftmesh is ready: {url}/v1\n{request}\n{join}"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def variables(parameters: Sequence[object]) -> list[str]:
    """The environment twins of a command's `parameters`."""
    names: list[str] = []
    for parameter in parameters:
        twin = getattr(parameter, "envvar", None)
        names += [twin] if isinstance(twin, str) else list(twin or ())
    return names
