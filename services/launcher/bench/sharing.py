"""Makes a card of a run, without anything that identifies people or places: names of hosts and users, paths,
addresses, messages."""

import getpass
import re
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import Final, TypeVar

from msgspec import Struct

from services.launcher.bench import card, facts, machine
from services.launcher.bench.acceptance import pooled
from services.launcher.bench.report import BenchReport, cell_fields
from services.launcher.bench.servers import PLAIN, Server
from services.launcher.bench.summary import Comparison, Summary

T = TypeVar("T", bound=Struct)

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PATH: Final = re.compile(r"(?<![\w.:/\\~-])(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\]+[^\s/\\]+)+")
_SEPARATORS: Final = re.compile(r"[/\\]+")
_ADDRESS: Final = re.compile(r"\b\w+://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")


def card_of(report: BenchReport, fleets: Mapping[str, facts.FleetFacts | None], ours: Sequence[str]) -> card.Card:
    """The card. `fleets` are the servers' own reports from during the run, by name; `ours` names the servers that
    are draftmesh."""
    labels = _labels(report.servers, ours)
    return card.Card(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        draftmesh=metadata.version("draftmesh"),
        command=command(report),
        machine=machine.look(),
        settings=card.ReportedSettings(**asdict(report.settings), interrupted=report.interrupted),
        servers=tuple(_server(report, one, labels, fleets.get(one.name)) for one in report.servers),
        results=tuple(_result(one, labels) for one in report.summaries),
        comparisons=tuple(_comparison(one, labels) for one in report.comparisons),
        acceptance=tuple(_acceptance(report, labels)),
        remarks=tuple(map(scrubbed, report.remarks(labels))),
    )


def scrubbed(text: str) -> str:
    """`text` with paths cut to their last part and without addresses and the names of this host and user."""
    text = _ADDRESS.sub("…", text)
    text = _PATH.sub(lambda path: _SEPARATORS.split(path[0])[-1], text)
    for name in _own_names():
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "…", text, flags=re.IGNORECASE)
    return text


def _own_names() -> list[str]:
    names = [socket.gethostname(), socket.gethostname().partition(".")[0]]
    with suppress(KeyError, OSError, ImportError):  # a user without an entry
        names.append(getpass.getuser())
    return [name for name in names if len(name) > 2]  # shorter names occur in too many words


def command(report: BenchReport) -> str:
    """The command that measures the same again; a server that is not on this machine is a placeholder."""
    words = ["draftmesh", "bench"]
    servers = [server for server in report.servers if not server.plain]
    for index, server in enumerate(servers):
        url = server.address.url
        where = f"{url.scheme}://" + (f"127.0.0.1:{url.port}" if url.host in _LOOPBACK else f"HOST-{index + 1}")
        named = f"{scrubbed(server.name)}={where}" if server.address.named else where
        words += ["--compare", named] if index else [named]
    if any(server.address.model for server in servers):
        words += [word for server in servers for word in ("--model", scrubbed(server.model))]
    words += ["--plain"] if report.plain else []
    settings = report.settings
    for option, values in (
        ("--workload", [one.value for one in settings.workloads]),
        ("--concurrency", settings.concurrencies),
        ("--temperature", [f"{value:g}" for value in settings.temperatures]),
        ("--tokens", [settings.tokens]),
        ("--repeat", [settings.repeat]),
        ("--seed", [settings.seed]),
    ):
        for value in values:
            words += [option, str(value)]
    return shlex.join([*words, "--report", "report.html"])


def _labels(servers: Sequence[Server], ours: Sequence[str]) -> dict[str, str]:
    """The servers' labels: the user's names, else what they are, numbered if needed to tell them apart."""
    labels: dict[str, str] = {}
    for server in servers:
        kind = PLAIN if server.plain else "draftmesh" if server.name in ours else "server"
        label = scrubbed(server.name) if server.address.named and not server.plain else kind
        names = (label, *(f"{label} {number}" for number in range(2, len(servers) + 1)))
        labels[server.name] = next(name for name in names if name not in labels.values())
    return labels


def _server(
    report: BenchReport, server: Server, labels: Mapping[str, str], fleet: facts.FleetFacts | None
) -> card.ReportedServer:
    verifiers = [one for one in fleet.verifiers if one.model == server.model] or fleet.verifiers if fleet else None
    return card.ReportedServer(
        name=labels[server.name],
        local=server.address.url.host in _LOOPBACK,
        plain=server.plain,
        model=scrubbed(server.model),
        software=scrubbed(server.software),
        fingerprint=scrubbed(report.fingerprint(server)),
        own_truncation=server.name in report.own_truncation,
        verifiers=None if verifiers is None else tuple(map(_verifier, verifiers)),
        drafters=None if fleet is None or verifiers is None else _drafters(fleet, {one.id for one in verifiers}),
    )


def _copied(kind: type[T], source: object, **changes: object) -> T:
    """A struct of `kind` with the fields that `source` has too, and with `changes`."""
    names = [name for name in kind.__struct_fields__ if name not in changes]
    return kind(**{name: getattr(source, name) for name in names}, **changes)


def _verifier(one: facts.VerifierFacts) -> card.ReportedVerifier:
    costs = dict(sorted(one.row_ms.items()))
    names = {"model": scrubbed(one.model), "device": scrubbed(one.device)}
    return _copied(card.ReportedVerifier, one, **names, row_ms=costs)


def _drafters(fleet: facts.FleetFacts, verifiers: set[str]) -> tuple[card.ReportedDrafter, ...]:
    return tuple(
        _copied(
            card.ReportedDrafter,
            one,
            model=scrubbed(one.model),
            device=scrubbed(one.device),
            acceptance_rate=one.accepted / one.drafted if one.drafted else None,
        )
        for one in fleet.drafters
        if one.verifier in verifiers and not one.refused
    )


def _result(one: Summary, labels: Mapping[str, str]) -> card.ReportedResult:
    known = one.acceptance
    return _copied(
        card.ReportedResult,
        one,
        **cell_fields([one.cell]),
        server=labels[one.server],
        drafted=known.drafted if known else None,
        accepted=known.accepted if known else None,
        acceptance_rate=known.rate if known else None,
        acceptance_by_offset=known.by_offset if known else (),
    )


def _comparison(one: Comparison, labels: Mapping[str, str]) -> card.ReportedComparison:
    return _copied(card.ReportedComparison, one, **cell_fields(one.cells), peer=labels[one.peer])


def _acceptance(report: BenchReport, labels: Mapping[str, str]) -> Iterator[card.ReportedAcceptance]:
    """Per server and temperature, over all workloads; nothing for a server without drafts."""
    summaries = report.summaries
    for server in report.names:
        for temperature in report.settings.temperatures:
            alike = (one for one in summaries if one.server == server and one.cell.temperature == temperature)
            found = pooled(one.acceptance for one in alike if one.acceptance)
            if found and found.drafted:
                yield card.ReportedAcceptance(
                    server=labels[server],
                    temperature=temperature,
                    drafted=found.drafted,
                    accepted=found.accepted,
                    rate=found.accepted / found.drafted,
                    by_offset=found.by_offset,
                    reached=found.reached[: len(found.by_offset)],
                )
