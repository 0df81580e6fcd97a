"""`draftmesh bench compare`: two cards side by side, after a list of their differences. Pure but for `run`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.launcher.bench.card import (
    Card,
    ReportedDrafter,
    ReportedResult,
    ReportedServer,
    ReportedVerifier,
    read,
)
from services.launcher.bench.tables import label, range_of, titled
from services.launcher.look.figures import UNKNOWN, plain


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that may explain the figures: its name, and its value in each measurement."""

    what: str
    a: str
    b: str


def run(a: Path, b: Path) -> int:
    """Print both: 0, or 1 if they measured nothing in common. Raises `StartError` for a file that is not a card."""
    one, other = read(a), read(b)
    console = Console(highlight=False)
    console.print(_listed(differences(one, other)))
    speeds, ratios = results(one, other), comparisons(one, other)
    for table in (speeds, ratios):
        if table.row_count:
            console.print(table)
    for card, name in ((one, "A"), (other, "B")):
        for remark in card.remarks:
            console.print(Text(plain(f"{name}: {remark}")))
    if not speeds.row_count:
        console.print("they have no work, temperature and concurrency in common, so there is nothing to compare")
        return 1
    return 0


def differences(a: Card, b: Card) -> list[Difference]:
    """The differences of machine, versions, settings, and the servers in order."""
    pairs = list(_facts(a, b))
    return [Difference(what, one, other) for what, one, other in pairs if one != other]


def _facts(a: Card, b: Card) -> Iterator[tuple[str, str, str]]:
    yield "processor", a.machine.cpu, b.machine.cpu
    yield "cores", str(a.machine.cores), str(b.machine.cores)
    yield "memory", _gib(a), _gib(b)
    yield "system", a.machine.system, b.machine.system
    yield "draftmesh", a.draftmesh, b.draftmesh
    for name in ("workloads", "temperatures", "concurrencies", "tokens", "repeat", "seed"):
        yield name, _said(getattr(a.settings, name)), _said(getattr(b.settings, name))
    # Servers of one role belong together, whatever they are called.
    for one, other in zip_longest(a.servers, b.servers):
        role = one or other
        for what, say in _SERVER_FACTS:
            yield f"{role.name}: {what}", say(one) if one else UNKNOWN, say(other) if other else UNKNOWN


def _verifiers(say: Callable[[ReportedVerifier], str]) -> Callable[[ReportedServer], str]:
    return lambda server: ", ".join(say(one) for one in server.verifiers or ()) or UNKNOWN


def _drafters(say: Callable[[ReportedDrafter], str]) -> Callable[[ReportedServer], str]:
    return lambda server: ", ".join(sorted(say(one) for one in server.drafters or ())) or UNKNOWN


_SERVER_FACTS: Final[tuple[tuple[str, Callable[[ReportedServer], str]], ...]] = (
    ("model", lambda server: server.model),
    ("software", lambda server: server.software),
    ("build", lambda server: server.fingerprint),
    ("device", _verifiers(lambda one: one.device)),
    ("exactness", _verifiers(lambda one: f"{one.exactness}, {one.layout}")),
    ("drafters", _drafters(lambda one: f"{one.model or one.kind} on {one.device or UNKNOWN}")),
    ("on this machine", lambda server: "yes" if server.local else "no"),
    ("without drafts", lambda server: "yes" if server.plain else "no"),
)


def results(a: Card, b: Card) -> Table:
    """Tokens per second by cell and server, for the cells and servers that both have."""
    headings = ("server", "A", "B", "B / A", "accepted A", "B", "first ms A", "B")
    table = titled("tokens per second: B over A, as a ratio of means", *headings)
    roles = _roles(a, b)
    known = {_cell(one): one for one in a.results}
    for one in b.results:
        before = known.get((*_cell(one)[:3], roles.get(one.server, one.server)))
        low, high = before and before.tokens_per_second, one.tokens_per_second
        if before and low and high and low.mean > 0:
            table.add_row(
                plain(label(one.workload, one.temperature, one.concurrency)),
                plain(one.server),
                f"{low.mean:.1f}",
                f"{high.mean:.1f}",
                f"{high.mean / low.mean:.2f}",
                *(_share(card) for card in (before, one)),
                *(_first(card) for card in (before, one)),
            )
    return table


def comparisons(a: Card, b: Card) -> Table:
    """The ratios that each run measured itself; these can be compared across machines."""
    title = f"{plain(b.servers[0].name)} over its peers: what each measured in turn, within its own run"
    table = titled(title, "server", "A", "min–max", "B", "min–max")
    roles = _roles(a, b)
    known = {(one.workload, one.temperature, one.concurrency, one.peer): one for one in a.comparisons}
    for one in b.comparisons:
        peer = roles.get(one.peer, one.peer)
        before = known.get((one.workload, one.temperature, one.concurrency, peer))
        if before and before.decode and one.decode:
            work = plain(label(one.workload or "all", one.temperature, one.concurrency))
            table.add_row(work, plain(one.peer), *range_of(before.decode), *range_of(one.decode))
    return table


def _roles(a: Card, b: Card) -> dict[str, str]:
    """For each server of B the name of its counterpart in A: of the same name, or else the first to the first."""
    roles = {one.name: one.name for one in b.servers if any(one.name == other.name for other in a.servers)}
    first, counterpart = b.servers[0].name, a.servers[0].name
    if first not in roles and counterpart not in roles.values():
        roles[first] = counterpart
    return roles


def _cell(one: ReportedResult) -> tuple[str, float, int, str]:
    return (one.workload, one.temperature, one.concurrency, one.server)


def _listed(found: Sequence[Difference]) -> Table | Text:
    if not found:
        return Text("same machine, models and settings, as far as the cards tell")
    table = titled("what differs", "what", "A", "B", labelled=False)
    for column in table.columns[1:]:
        column.justify, column.no_wrap, column.overflow = "left", False, "fold"
    for one in found:
        table.add_row(plain(one.what), plain(one.a) or UNKNOWN, plain(one.b) or UNKNOWN)
    return table


def _share(one: ReportedResult) -> str:
    return UNKNOWN if one.acceptance_rate is None else f"{one.acceptance_rate:.0%}"


def _first(one: ReportedResult) -> str:
    return f"{one.first_token_ms.p50:.0f}" if one.first_token_ms else UNKNOWN


def _gib(card: Card) -> str:
    return f"{card.machine.memory_bytes / (1 << 30):.0f} GiB" if card.machine.memory_bytes else UNKNOWN


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value)
    return str(value)
