"""The card of a measurement: what people share of it, as JSON. It holds no name of a host or user, no path, no key.

The structs are its keys; `summary.py` defines the figures. An unknown figure is null, and units are in the names.
"""

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from services.launcher.bench.machine import Machine
from services.launcher.bench.summary import Percentiles, Ratio, Spread
from shared.errors import StartError

VERSION: Final = 1
_MAX_BYTES: Final = 16 << 20


class ReportedSettings(Struct, frozen=True, kw_only=True):
    """What was asked."""

    workloads: tuple[str, ...]
    concurrencies: Annotated[tuple[int, ...], Meta(min_length=1)]
    temperatures: tuple[float, ...]
    tokens: int
    repeat: int
    seed: int
    interrupted: bool


class ReportedVerifier(Struct, frozen=True, kw_only=True):
    """A process that owns the target."""

    model: str
    device: str
    exactness: str
    layout: str
    ctx: int
    row_ms: dict[int, float]  # ms of a decode by its rows


class ReportedDrafter(Struct, frozen=True, kw_only=True):
    """A drafter and how many of its guesses were accepted in this measurement."""

    model: str
    kind: str
    device: str
    tokens_per_second: float
    round_trip_ms: float | None
    drafted: int
    accepted: int
    acceptance_rate: float | None
    added: int


class ReportedServer(Struct, frozen=True, kw_only=True):
    """A server that was measured."""

    name: str
    local: bool  # it ran on this machine
    plain: bool  # it was asked to answer without drafts
    model: str
    software: str
    fingerprint: str
    own_truncation: bool  # its own top_k and min_p held
    verifiers: tuple[ReportedVerifier, ...] | None  # None: not a draftmesh fleet
    drafters: tuple[ReportedDrafter, ...] | None


class ReportedResult(Struct, frozen=True, kw_only=True):
    """A cell at a server."""

    workload: str
    temperature: float
    concurrency: int
    server: str
    answers: int
    failed: int
    tokens_per_second: Spread | None
    total_tokens_per_second: Spread | None
    first_token_ms: Percentiles | None
    time_per_token_ms: Percentiles | None
    inter_token_ms: Percentiles | None
    drafted: int | None
    accepted: int | None
    acceptance_rate: float | None
    acceptance_by_offset: tuple[float, ...]
    tokens_per_round: float | None


class ReportedComparison(Struct, frozen=True, kw_only=True):
    """The first server over a peer."""

    workload: str | None  # None: all of them
    temperature: float
    concurrency: int
    peer: str
    decode: Ratio | None  # over a plain peer, the speed-up by drafts
    total: Ratio | None
    first_token: Ratio | None


class ReportedAcceptance(Struct, frozen=True, kw_only=True):
    """How many drafts the target agreed with, over all workloads."""

    server: str
    temperature: float
    drafted: int
    accepted: int
    rate: float
    by_offset: tuple[float, ...]  # of the drafts that got to that place of their chain
    reached: tuple[float, ...]  # how many did, as well as the server lets one know


class Card(Struct, frozen=True, kw_only=True):
    """A measurement."""

    card: int = VERSION  # of these keys
    created: str  # UTC
    draftmesh: str  # version of the client
    command: str  # measures this again
    machine: Machine
    settings: ReportedSettings
    servers: Annotated[tuple[ReportedServer, ...], Meta(min_length=1)]
    results: tuple[ReportedResult, ...]
    comparisons: tuple[ReportedComparison, ...]
    acceptance: tuple[ReportedAcceptance, ...]
    remarks: tuple[str, ...]  # what to know before believing the figures


class _Any(Struct):
    card: int


def write(card: Card, path: Path) -> None:
    """Store it, readable by people too."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def read(path: Path) -> Card:
    """The card at `path`. Raises `StartError`, one line, if it is not a card that this release understands."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES)
    except OSError as error:
        raise StartError("card", path, error.strerror or "cannot be read") from None
    try:
        version = msgspec.json.decode(data, type=_Any).card
    except msgspec.DecodeError:
        raise StartError(
            "card", path, "not a benchmark card; `draftmesh bench --report x.html` writes one as x.json"
        ) from None
    if version != VERSION:
        raise StartError("card", path, f"is of version {version}, and this draftmesh knows version {VERSION}")
    try:
        return msgspec.json.decode(data, type=Card)
    except msgspec.DecodeError as error:
        raise StartError("card", path, f"a damaged card ({error})") from None
