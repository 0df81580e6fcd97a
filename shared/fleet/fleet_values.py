"""The types of the fleet's values: `status --json`, `/status` with its OpenAPI schema, and the page show them. Pure.

Names are stable; new ones may come. None (JSON: null) is an unknown value, and units are in the names. Speeds are of
the last seconds, `speedup` and `tokens_per_round` of verifiers of the last rounds, however long ago.
"""

from typing import Annotated

from msgspec import Meta, Struct


class _Values(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Totals(_Values, frozen=True, kw_only=True):
    """All verifiers together; speeds are of the last seconds, speed-up and tokens per round of the last rounds."""

    tokens_per_second: float
    plain_tokens_per_second: Annotated[float, Meta(description="What plain decoding would give for the same requests")]
    speedup: float | None
    tokens_per_round: float | None
    running: int
    slots: int
    waiting: Annotated[int | None, Meta(description="Requests that no verifier has taken yet")]
    cells: Annotated[int, Meta(description="Tokens that fit in the KV cache")]
    cells_used: Annotated[int, Meta(description="How many of these are held, for running requests and as prefix cache")]
    cells_running: int


class ProcessStatus(_Values, frozen=True, kw_only=True):
    """One process."""

    kind: Annotated[str, Meta(description="gateway, verifier, drafter or lookup drafter")]
    id: str
    host: str
    pid: int
    device: str
    model: str
    load: Annotated[str, Meta(description="A phrase")]
    tokens_per_second: float | None
    created: Annotated[int | None, Meta(description="Unix seconds")]
    url: Annotated[str, Meta(description="A gateway's address")]


class RoundStart(_Values, frozen=True, kw_only=True):
    """How rounds began, by what ended the round before."""

    after: str
    offset: int
    rounds: int
    ready: int


class PayoffStatus(_Values, frozen=True, kw_only=True):
    """Whether speculation pays on a verifier, by the drafter that promises most; null where it is not measured."""

    width: Annotated[
        int | None,
        Meta(description="Drafts a round that are worth most while drafts are made; 0: plain decoding"),
    ]
    speedup: Annotated[
        float | None, Meta(description="Over plain decoding, as seen in the last rounds or else as expected")
    ]
    expected: float | None
    ceiling: Annotated[float | None, Meta(description="With drafts that are always ready")]
    reason: Annotated[str, Meta(description="Why speculation does not pay; empty if it does")]
    sentence: str


class VerifierStatus(_Values, frozen=True, kw_only=True):
    """One verifier."""

    id: str
    host: str
    device: str
    model: str
    aliases: tuple[str, ...]
    exactness: str
    exactness_note: str
    sharing: str
    layout: str
    speculation: str
    ctx: int
    slots: int
    running: int
    waiting: int | None
    draining: bool
    tokens_per_second: float
    plain_tokens_per_second: float
    speedup: float | None
    tokens_per_round: float | None
    acceptance_rate: float | None
    cells: int
    cells_used: int
    cells_running: int
    cache_hit_rate: float | None
    row_ms: Annotated[dict[int, float], Meta(description="Decode time in milliseconds by row count")]
    row_cost: Annotated[dict[int, float], Meta(description="The same, relative to one row")]
    row_source: Annotated[str, Meta(description="Where these figures come from, and since when")]
    payoff: PayoffStatus
    accepted_per_position: Annotated[tuple[int, ...], Meta(description="Accepted drafts by their place in the round")]
    round_starts: tuple[RoundStart, ...]
    drafts_ready: Annotated[
        dict[str, float | None], Meta(description="Share of rounds that found drafts ready, by what ended")
    ]
    counters: Annotated[dict[str, int], Meta(description="Since the start")]
    refused: Annotated[dict[str, str], Meta(description="Drafters that it refuses, and why")]


class DrafterStatus(_Values, frozen=True, kw_only=True):
    """One drafter, for one of the verifiers that use it."""

    id: str
    kind: str
    host: str
    device: str
    model: str
    sessions: int
    capacity: int
    tokens_per_second: float
    step_ms: Annotated[float | None, Meta(description="How long one of its steps takes")]
    verifier: str | None
    drafted: int
    accepted: int
    added: Annotated[int, Meta(description="Accepted tokens that no other drafter of the request had guessed")]
    adds: Annotated[float | None, Meta(description="These per round of the requests that it drafts for")]
    acceptance_rate: float | None
    tokens_per_round: float | None
    round_trip_ms: float | None
    stale: int
    refused: str | None


class RunningRequest(_Values, frozen=True, kw_only=True):
    """One request in a verifier."""

    request_id: str
    model: str
    verifier: str
    age_ms: int
    offset: int
    tokens_per_second: float
    tokens_per_round: float
    drafters: tuple[str, ...]
    reason: Annotated[str, Meta(description="Why it does not speculate; empty if it does")]


class ModelName(_Values, frozen=True, kw_only=True):
    """A name that requests may ask for, and the model that it means."""

    name: str
    model: str


class NameConflict(_Values, frozen=True, kw_only=True):
    """An alias that a model claims but does not get."""

    alias: str
    model: str
    winner: str
    note: str


class DesertedRequests(_Values, frozen=True, kw_only=True):
    """Requests of one gateway whose model has no verifier any more."""

    gateway: str
    model: str
    requests: int
    reason: str


class FleetStatus(_Values, frozen=True, kw_only=True):
    """The whole fleet; unknown values are null."""

    verdict: Annotated[str, Meta(description="A sentence: how much speculation helps now, or what is missing")]
    totals: Totals
    processes: tuple[ProcessStatus, ...]
    verifiers: tuple[VerifierStatus, ...]
    drafters: tuple[DrafterStatus, ...]
    requests: tuple[RunningRequest, ...]
    names: tuple[ModelName, ...]
    conflicts: tuple[NameConflict, ...]
    deserted: tuple[DesertedRequests, ...]
