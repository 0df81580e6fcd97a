"""`draftmesh up`: runs a whole fleet on this machine, says when it is ready or why not, and leaves nothing when it
ends."""

import asyncio
import io
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from services.launcher.display import Display
from services.launcher.facts.fleet_reader import read_cards
from services.launcher.facts.run_file import FleetRun, RunFile, recorded
from services.launcher.fleet import fleet_plan, ports
from services.launcher.fleet.child import Child
from services.launcher.fleet.fleet_plan import Plan
from services.launcher.fleet.machines import Token
from services.launcher.fleet.stack import is_ready, readiness
from services.launcher.fleet.supervised_run import FAILED, SupervisedRun, with_logs
from services.launcher.fleet.supervisor import ChildFailed
from services.launcher.models import fetching
from services.launcher.settings.service_options import Handed
from services.launcher.settings.up_options import UpOptions
from shared.fleet import measured
from shared.fleet.model_names import Names, resolve
from shared.law import payoff
from shared.model import chat_templates, hardware
from shared.settings import settings_file
from shared.settings.options import variable
from shared.settings.options_struct import declarations
from shared.wire.broker import BrokerError, connect
from shared.wire.messages import Card, VerifierCard

_POLL_S: Final = 0.1  # time between two checks; a start takes seconds
_REMEDY: Final = f"--chat-template takes a Jinja file, or one of {chat_templates.NAMES}"
_VALKEY_S: Final = 10.0  # it is ready in 50 ms


def run(options: UpOptions, handed: Handed) -> int:
    """Run the fleet until SIGINT or SIGTERM; the exit status. Raises `StartError` before anything is started.

    Children get our decisions instead of the environment twins of our options. They get their part of `draftmesh.toml`
    from `handed`, so they read no file.
    """
    display = Display.on_stderr()
    twins = set(map(variable, declarations(UpOptions)))
    environment = {name: value for name, value in os.environ.items() if name not in twins}
    environment[settings_file.VARIABLE] = settings_file.OFF

    def find(spec: str, option: str) -> Path:
        return fetching.find(spec, option, display.console)

    def live(folder: Path) -> int:
        here = hardware.look()
        for reason in here.broken.values():
            display.say(reason, "yellow")
        made = fleet_plan.make(options, here.devices, find, folder, environment, handed)
        with ExitStack() as stack:
            file = _recorded(stack, made, folder, display)
            code = asyncio.run(FleetProcesses(made, folder, display).run())
            if code == FAILED and file:
                file.kept = True
        return code

    return with_logs(live, lambda folder: display.say(f"logs are kept in {folder}; `draftmesh logs` shows them"))


def _recorded(stack: ExitStack, made: Plan, folder: Path, display: Display) -> RunFile | None:
    """Record this fleet for other commands; if that fails, they need `--redis`."""
    run = FleetRun(pid=os.getpid(), gateway=made.url, redis=made.redis, logs=str(folder), started=time.time())
    try:
        return stack.enter_context(recorded(run))
    except OSError as error:
        display.say(
            f"other commands, such as status, will need --redis: this fleet cannot be recorded ({error})", "yellow"
        )
        return None


class FleetProcesses:
    """The processes of one `up`."""

    def __init__(self, fleet_plan: Plan, folder: Path, display: Display) -> None:
        self._plan, self._folder, self._display = fleet_plan, folder, display
        self._session = SupervisedRun(folder, display, "stopped")
        self._supervisor = self._session.supervisor

    async def run(self) -> int:
        """Start, announce, wait for a signal, stop: 0, or the exit status for a failed child."""
        return await self._session.run(self._live)

    async def _live(self) -> None:
        """Start everything and watch it until cancelled."""
        self._display.open()
        for note in self._plan.notes:
            self._display.say(note)
        # A group of its own: cancelling it stops watching the children before they are stopped.
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervisor.keep_logs(), name="logs")
            verifiers = await self._start(group)
            await self._ready(verifiers)
            async with self._announced():
                await asyncio.Event().wait()

    async def _start(self, group: asyncio.TaskGroup) -> list[Child]:
        if self._plan.valkey:
            await self._supervisor.start(self._plan.valkey, group)
            await self._valkey_answers()
            self._display.state("valkey", "ready")
        else:
            async with connect(self._plan.redis):
                pass  # reports an address that does not answer once, instead of by every child
        verifiers = [await self._supervisor.start(program, group) for program in self._plan.verifiers]
        for program in (self._plan.gateway, *self._plan.drafters):
            await self._supervisor.start(program, group)
        return verifiers

    async def _valkey_answers(self) -> None:
        port = urlsplit(self._plan.redis).port or 0
        deadline = asyncio.get_running_loop().time() + _VALKEY_S
        while not await ports.answers(port):
            if asyncio.get_running_loop().time() > deadline:
                raise ChildFailed("valkey", f"no answer on port {port} within {_VALKEY_S:.0f} s", 1)
            await asyncio.sleep(0.02)

    async def _ready(self, verifiers: Sequence[Child]) -> None:
        """Wait until the gateway accepts requests for all models, however long they load; then say so."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            while not await is_ready(http, self._plan.url):
                self._supervisor.report_starting()
                await asyncio.sleep(_POLL_S)
        cards = await self._cards()
        while not {verifier.pid for verifier in verifiers} <= {card.pid for card in cards}:
            self._supervisor.report_starting()
            await asyncio.sleep(_POLL_S)
            cards = await self._cards()
        self._supervisor.report_ready({card.pid for card in cards})
        self._display.close()
        speechless = await self._speechless()
        for model, reason in speechless.items():
            self._display.say(f"{model} completes text and takes no messages: {reason}; {_REMEDY}", "yellow")
        ours = [card for verifier in verifiers for card in cards if card.pid == verifier.pid]
        served = [card for card in ours if isinstance(card, VerifierCard)]
        for line, style in remarks(served, cards):
            self._display.say(line, style)
        self._display.say(f"logs are in {self._folder} (`draftmesh logs` shows them); Ctrl-C stops everything")
        sys.stdout.write(announcement(self._plan, resolve(served), speechless))
        if self._plan.invitation and sys.stdout.isatty():
            sys.stdout.write(qr_code("\n".join((self._plan.invitation, *map(str, self._plan.tokens[:1])))))
        sys.stdout.flush()

    async def _speechless(self) -> dict[str, str]:
        """The models without a chat template that works, and why."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            ready = await readiness(http, self._plan.url) or {}
        return dict(ready.get("speechless", {}))

    @asynccontextmanager
    async def _announced(self) -> AsyncIterator[None]:
        """Let `join` on other machines find this fleet, if `--lan` is set and multicast works."""
        if self._plan.beacon is None:
            yield
            return
        from services.launcher.fleet.beacon import MulticastUnavailable, announced

        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(announced(self._plan.beacon))
            except MulticastUnavailable as reason:
                self._display.say(f"not announced by zeroconf ({reason}); `draftmesh join` needs the address above")
            yield

    async def _cards(self) -> list[Card]:
        """Cards of this machine's processes; none if Redis does not answer just now."""
        try:
            return [card for card in await read_cards(self._plan.redis) if card.host == socket.gethostname()]
        except BrokerError:
            return []


def remarks(verifiers: Sequence[VerifierCard], cards: Sequence[Card] = ()) -> list[tuple[str, str]]:
    """Remarks about these verifiers, as lines with their style; `cards` are of the whole fleet."""
    lines = []
    for card in verifiers:
        of = f"{card.model}: " if len(verifiers) > 1 else ""
        note = f" ({card.exactness_note})" if card.exactness_note else ""
        lines.append((f"{of}exactness: {card.exactness}{note}", ""))
        lines.append((f"{of}{payoff.sentence(measured.of_verifier(card, cards))}", ""))
    for drafter in dict.fromkeys(drafter for card in verifiers for drafter, _ in card.refused):
        refusals = [(card.model, reason) for card in verifiers for name, reason in card.refused if name == drafter]
        if len(refusals) == len(verifiers):
            lines.append((f"refused drafter {drafter}: {refusals[0][1]}", "red"))
        else:  # it has the vocabulary of one of several models
            lines += [(f"drafter {drafter} cannot draft for {model}: {reason}", "") for model, reason in refusals]
    return lines


def announcement(fleet_plan: Plan, names: Names, speechless: Collection[str] = ()) -> str:
    """The ready line and a request to paste; the models and names, if there are several; and what other machines
    need, if they can reach us. Models in `speechless` take no messages."""
    model = names.default or names.models[0]
    path, asked = "chat/completions", dict[str, object](messages=[{"role": "user", "content": "Why is the sky blue?"}])
    if model in speechless:
        path, asked = "completions", {"prompt": "The sky is blue because", "max_tokens": 64}
    quoted = json.dumps({"model": model, **asked}).replace("'", "'\\''")
    key = f" -H 'Authorization: Bearer {fleet_plan.api_key}'" if fleet_plan.api_key else ""
    lines = [
        f"draftmesh is ready: {fleet_plan.url}/v1",
        f"curl {fleet_plan.url}/v1/{path} -H 'Content-Type: application/json'{key} -d '{quoted}'",
    ]
    if len(names.models) > 1 or names.aliases:
        lines.append(f"served: {names.listing()}")
    if fleet_plan.lan_url:
        lines.append(f"from other machines: {fleet_plan.lan_url}/v1")
    if fleet_plan.api_key:
        lines.append(f"API key, made for this start: {fleet_plan.api_key}")
    if fleet_plan.invitation:
        lines.append(f"on a spare machine: {fleet_plan.invitation}")
        lines.append(_tokens(fleet_plan.tokens))
    return "".join(f"{line}\n" for line in lines)


def _tokens(tokens: Sequence[Token]) -> str:
    """The token to type there if it is the only one; otherwise who has one."""
    more = "`draftmesh invite NAME` makes one for another machine"
    if len(tokens) == 1:
        return f"its token, for which join asks: {tokens[0]} ({more})"
    return f"tokens have: {', '.join(token.machine for token in tokens)} ({more})"


def qr_code(text: str) -> str:
    """The text as a QR code for a terminal."""
    import segno

    drawing = io.StringIO()
    segno.make(text, error="l").terminal(drawing, compact=True)
    return drawing.getvalue()
