"""Runs `draftmesh bench`: checks everything possible first, measures, and reports even if the run is interrupted."""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from rich.console import Console

from services.launcher.bench import facts
from services.launcher.bench.card import Card, write
from services.launcher.bench.plan import BenchSettings, PlannedTurn, turns, warm_up
from services.launcher.bench.report import BenchReport
from services.launcher.bench.runner import Runner
from services.launcher.bench.servers import Server, ServerAddress, connect, without_drafts
from services.launcher.bench.sharing import card_of
from services.launcher.bench.tables import tables
from services.launcher.display import say
from services.launcher.fleet.stack import run_to_end
from services.launcher.models.progress import counted
from shared.errors import StartError
from shared.settings.command_line import INTERRUPTED

CARD_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The command line, parsed."""

    addresses: tuple[ServerAddress, ...] = field(repr=False)
    settings: BenchSettings
    timeout_s: float
    json_file: Path | None
    report_file: Path | None = None  # HTML; the card goes beside it
    plain: bool | None = None  # measure the first server without drafts too; None: with a report, if it is ours


def run(options: BenchOptions) -> int:
    """Measure, print, write. 0; 1 if every request failed; 130 after Ctrl-C. Raises `StartError` before measuring."""
    _check_files(options)
    bench = _Bench(options)
    status = run_to_end(bench.measure())
    report = bench.report(interrupted=status == INTERRUPTED)
    if report is None or not (report.measured.samples or report.measured.failures):
        return status
    console = Console(highlight=False)
    console.print(*tables(report), sep="\n")
    for line in report.remarks():
        say(console, line)
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(report.as_json(), indent=1) + "\n")
        say(console, f"written to {options.json_file}")
    if options.report_file is not None:
        _share(card_of(report, bench.fleets, bench.ours), options.report_file, console)
    return status or int(not report.measured.samples)


class _Bench:
    """The asynchronous part; its report exists even after it was cancelled."""

    def __init__(self, options: BenchOptions) -> None:
        self._options = options
        self._errors = Console(stderr=True, highlight=False, soft_wrap=True)
        self._servers: list[Server] = []
        self._runner: Runner | None = None
        self.ours: list[str] = []  # names of servers that are draftmesh
        self.fleets: dict[str, facts.FleetFacts | None] = {}

    async def measure(self) -> int:
        settings = self._options.settings
        plan = turns(settings)
        timeout = aiohttp.ClientTimeout(total=self._options.timeout_s)
        # Keeps no idle connections: a server may close one during another server's turn, and the next request would
        # fail.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            self._servers = [await connect(http, address) for address in self._options.addresses]
            before = await self._look(http)
            self._announce(plan)
            total = len(self._servers) * sum(turn.requests for turn in plan)
            with counted(self._errors, total, transient=True) as tell:
                tell("warming up")
                self._runner = Runner(http, self._servers, lambda server: tell(server, 1))
                await self._runner.warm_up(warm_up(settings))
                await self._runner.run(plan)
            if before:
                await asyncio.sleep(facts.SETTLE_S)
            named = {server.name: server for server in self._servers}
            for name, fleet in before.items():
                self.fleets[name] = facts.since(fleet, await facts.read(http, named[name]))
        return 0

    async def _look(self, http: aiohttp.ClientSession) -> dict[str, facts.FleetFacts | None]:
        """Read the fleets before the run if needed, and add the server without drafts."""
        options = self._options
        if not (options.plain or options.report_file):
            return {}
        ours = [server for server in self._servers if await facts.is_ours(http, server)]
        self.ours = [server.name for server in ours]
        first = self._servers[0]
        if options.plain and first not in ours:
            raise StartError("--plain", first.name, "is not draftmesh, so it cannot be asked to answer without drafts")
        if first in ours and options.plain is not False:
            self._servers.insert(1, without_drafts(first, [server.name for server in self._servers]))
        return {server.name: await facts.read(http, server) for server in ours} if options.report_file else {}

    def report(self, *, interrupted: bool) -> BenchReport | None:
        if self._runner is None:
            return None
        return BenchReport(
            settings=self._options.settings,
            servers=tuple(self._servers),
            own_truncation=tuple(self._runner.cut),
            timeout_s=self._options.timeout_s,
            interrupted=interrupted,
            measured=self._runner.measured,
        )

    def _announce(self, plan: Sequence[PlannedTurn]) -> None:
        requests = sum(turn.requests for turn in plan)
        for server in self._servers:
            self._errors.print(f"{server.name}: {server.model}", markup=False)
        self._errors.print(
            f"{requests} requests to each server, up to {self._options.settings.tokens} tokens per answer, seed"
            f" {self._options.settings.seed}; Ctrl-C ends it early and reports what there is"
        )


def _check_files(options: BenchOptions) -> None:
    """Fail now instead of after minutes of measuring."""
    report, html = options.report_file, "--report"
    if report is not None and report.suffix.lower() not in (".html", ".htm"):
        raise StartError(html, report, "a file whose name ends in .html; the card goes beside it")
    card = None if report is None else report.with_suffix(CARD_SUFFIX)
    files = (("--json", options.json_file), (html, report), (html, card))
    if card is not None and options.json_file is not None and card.resolve() == options.json_file.resolve():
        raise StartError("--json", options.json_file, "is where --report puts its card; choose another name")
    for name, path in files:
        if path is not None and not _can_be_written(path):
            raise StartError(name, path, "a file that can be written, in a folder that exists")


def _can_be_written(path: Path) -> bool:
    place = path if path.exists() else path.resolve().parent
    return place.is_dir() != path.exists() and os.access(place, os.W_OK)


def _share(made: Card, path: Path, console: Console) -> None:
    from services.launcher.bench.page import render

    beside = path.with_suffix(CARD_SUFFIX)
    path.write_text(render(made), encoding="utf-8")
    write(made, beside)
    say(console, f"to share: {path}, and {beside} for draftmesh bench compare")
