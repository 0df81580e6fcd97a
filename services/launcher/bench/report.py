"""The results of a run: tables for people and JSON for programs. bench/summary.py defines every figure.

Keys of the JSON file:
  created       when, UTC
  draftmesh     version of the client
  machine       the client's: cpu, cores, memory_bytes, system, python
  settings      workloads, concurrencies, temperatures, tokens, repeat, seed, timeout_s, interrupted
  servers       name, url (without credentials), model, software and fingerprint (what it calls itself and its build),
                own_truncation (it took no top_k and min_p, so its defaults hold), plain (asked for no drafts)
  summaries     per cell (workload, temperature, concurrency) and server:
    answers, failed           counts
    tokens_per_second         mean, min, max, stdev, count over answers: decode speed
    total_tokens_per_second   the same over turns: all requests at once
    first_token_ms, time_per_token_ms, inter_token_ms   p50, p99
    acceptance                drafted, accepted, rate, by_offset; null where the server reports nothing
    tokens_per_round          tokens per decode of the target
  comparisons   per peer and cell (workload null: all workloads): decode, total, first_token; each with mean, min, max
                and pairs of the ratio of the first server to the peer
  failures      server, cell, repetition, message
  samples       every answer: server, cell, repetition, index, step, prompt, seed, and its reply with arrivals_s
  turns         every turn: server, cell, repetition, tokens, seconds
Units are in the names; an unknown figure is null.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from services.launcher.bench import machine
from services.launcher.bench.plan import BenchSettings, Cell
from services.launcher.bench.samples import Measurements
from services.launcher.bench.servers import Server
from services.launcher.bench.summary import Comparison, Summary, comparisons, summaries


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """A run, whole or interrupted."""

    settings: BenchSettings
    servers: tuple[Server, ...]
    own_truncation: tuple[str, ...]  # names of servers that took no top_k and min_p
    timeout_s: float
    interrupted: bool
    measured: Measurements

    @property
    def names(self) -> list[str]:
        return [server.name for server in self.servers]

    @property
    def plain(self) -> set[str]:
        """Names of the servers that were asked for no drafts."""
        return {server.name for server in self.servers if server.plain}

    @property
    def summaries(self) -> list[Summary]:
        return summaries(self.measured, self.settings.cells, self.names)

    @property
    def comparisons(self) -> list[Comparison]:
        return comparisons(self.measured, self.settings.cells, self.names)

    def as_json(self) -> dict[str, Any]:
        """The contents of the JSON file, as the module's docstring lists them."""
        measured = self.measured
        return {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "draftmesh": metadata.version("draftmesh"),
            "machine": asdict(machine.look()),
            "settings": {
                **asdict(self.settings),
                "timeout_s": self.timeout_s,
                "interrupted": self.interrupted,
            },
            "servers": [self._server(server) for server in self.servers],
            "summaries": [_summary(one) for one in self.summaries],
            "comparisons": [_comparison(one) for one in self.comparisons],
            "failures": [_flat(asdict(one)) for one in measured.failures],
            "samples": [_flat(asdict(one)) for one in measured.samples],
            "turns": [_flat(asdict(one)) for one in measured.loads],
        }

    def _server(self, server: Server) -> dict[str, Any]:
        return {
            "name": server.name,
            "url": str(server.address.url.with_user(None)),
            "model": server.model,
            "software": server.software,
            "fingerprint": self.fingerprint(server),
            "own_truncation": server.name in self.own_truncation,
            "plain": server.plain,
        }

    def fingerprint(self, server: Server) -> str:
        """The server's name for its build; empty if it has none."""
        found = (one.reply.fingerprint for one in self.measured.samples if one.server == server.name)
        return next(filter(None, found), "")

    def remarks(self, labels: Mapping[str, str] | None = None) -> list[str]:
        """What to know before believing the tables.

        `labels` are other names for the servers, for a shared report; this leaves out messages of failures then,
        because they quote addresses.
        """
        lines = []
        if self.interrupted:
            lines.append("interrupted: these are the answers so far")
        for server in self.names:
            lines += self._remarks(server, labels)
        return lines

    def _remarks(self, server: str, labels: Mapping[str, str] | None) -> list[str]:
        name = labels[server] if labels else server
        lines = []
        replies = [one.reply for one in self.measured.samples if one.server == server]
        failures = (one.message for one in self.measured.failures if one.server == server)
        lines += [
            f"{name}: {count} of {count + len(replies)} requests failed{message}"
            for message, count in Counter("" if labels else f": {message}" for message in failures).most_common()
        ]
        reasons = [] if server in self.plain else [one.acceptance.reason for one in replies if one.acceptance]
        lines += [
            f"{name}: {count} of {len(replies)} answers had no drafts: {reason}"
            for reason, count in Counter(filter(None, reasons)).most_common()
        ]
        if any(reply.counted == "chunks" for reply in replies):
            lines.append(f"{name}: reports no usage, so each event was counted as one token")
        if server in self.own_truncation:
            lines.append(f"{name}: takes no top_k and min_p, so its own defaults hold and may favour it")
        return lines


def cell_fields(cells: Sequence[Cell]) -> dict[str, Any]:
    """What tells a cell from others, or all workloads together from those of another concurrency or temperature."""
    one = cells[0]
    workload = one.workload.value if len(cells) == 1 else None
    return {"workload": workload, "temperature": one.temperature, "concurrency": one.concurrency}


def _summary(one: Summary) -> dict[str, Any]:
    acceptance = one.acceptance and {
        "drafted": one.acceptance.drafted,
        "accepted": one.acceptance.accepted,
        "rate": one.acceptance.rate,
        "by_offset": list(one.acceptance.by_offset),
    }
    return {**cell_fields([one.cell]), **_without(asdict(one), "cell"), "acceptance": acceptance}


def _comparison(one: Comparison) -> dict[str, Any]:
    return {**cell_fields(one.cells), **_without(asdict(one), "cells")}


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {**fields["cell"], **_without(fields, "cell")}


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
