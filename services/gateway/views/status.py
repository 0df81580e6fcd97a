"""The fleet over HTTP: what `draftmesh status --json` prints, as JSON and as events."""

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import web
from pydantic import Field

from services.gateway.errors import draining
from services.gateway.http.gateway import GATEWAY
from services.gateway.http.reply import Reply
from services.gateway.http.sse import PING, ClientGone, EventStream
from services.gateway.monitoring.watch import FleetWatch
from shared.fleet.fleet_values import describe

_MEDIA: Final = "text/event-stream"


class Totals(Reply):
    """All verifiers together; speeds are of the last seconds, speed-up and tokens per round of the last rounds."""

    tokens_per_second: float
    plain_tokens_per_second: float = Field(description="What plain decoding would give for the same requests")
    speedup: float | None
    tokens_per_round: float | None
    running: int
    slots: int
    waiting: int | None = Field(description="Requests that no verifier has taken yet")
    cells: int = Field(description="Tokens that fit in the KV cache")
    cells_used: int = Field(description="How many of these are held, for running requests and as prefix cache")
    cells_running: int


class ProcessStatus(Reply):
    """One process."""

    kind: str
    id: str
    host: str
    pid: int
    device: str
    model: str
    load: str
    tokens_per_second: float | None
    created: int | None = Field(description="Unix seconds")
    url: str = Field(description="A gateway's address")


class RoundStart(Reply):
    """How rounds began, by what ended the round before."""

    after: str
    offset: int
    rounds: int
    ready: int


class PayoffStatus(Reply):
    """Whether speculation pays on a verifier; null where it is not measured."""

    width: int | None = Field(description="Drafts a round that are worth most while drafts are made; 0: plain decoding")
    speedup: float | None = Field(description="Over plain decoding, as seen in the last rounds or else as expected")
    expected: float | None
    ceiling: float | None = Field(description="With drafts that are always ready")
    reason: str = Field(description="Why speculation does not pay; empty if it does")
    sentence: str


class VerifierStatus(Reply):
    """One verifier."""

    id: str
    host: str
    device: str
    model: str
    aliases: list[str]
    exactness: str
    exactness_note: str
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
    row_ms: dict[int, float] = Field(description="Decode time in milliseconds by row count")
    row_cost: dict[int, float] = Field(description="The same, relative to one row")
    row_source: str = Field(description="Where these figures come from")
    payoff: PayoffStatus
    accepted_per_position: list[int]
    round_starts: list[RoundStart]
    drafts_ready: dict[str, float | None] = Field(description="Share of rounds that found drafts ready, by what ended")
    counters: dict[str, int]
    refused: dict[str, str] = Field(description="Drafters that it refuses, and why")


class DrafterStatus(Reply):
    """One drafter, for one of the verifiers that use it."""

    id: str
    kind: str
    host: str
    device: str
    model: str
    sessions: int
    capacity: int
    tokens_per_second: float
    step_ms: float | None = Field(description="How long one of its steps takes")
    verifier: str | None
    drafted: int
    accepted: int
    added: int
    adds: float | None = Field(
        description="Accepted tokens per round of its requests that no other drafter had guessed"
    )
    acceptance_rate: float | None
    tokens_per_round: float | None
    round_trip_ms: float | None
    stale: int
    refused: str | None


class RunningRequest(Reply):
    """One request in a verifier."""

    request_id: str
    model: str
    verifier: str
    age_ms: int
    offset: int
    tokens_per_second: float
    tokens_per_round: float
    drafters: list[str]
    reason: str = Field(description="Why it does not speculate; empty if it does")


class ModelName(Reply):
    """A name that requests may ask for, and the model that it means."""

    name: str
    model: str


class NameConflict(Reply):
    """An alias that a model claims but does not get."""

    alias: str
    model: str
    winner: str
    note: str


class DesertedRequests(Reply):
    """Requests of one gateway whose model has no verifier any more."""

    gateway: str
    model: str
    requests: int
    reason: str


class FleetStatus(Reply):
    """The answer of /status; unknown values are null."""

    verdict: str
    totals: Totals
    processes: list[ProcessStatus]
    verifiers: list[VerifierStatus]
    drafters: list[DrafterStatus]
    requests: list[RunningRequest]
    names: list[ModelName]
    conflicts: list[NameConflict]
    deserted: list[DesertedRequests]


async def status(request: web.Request) -> web.Response:
    """The fleet as of the last second."""
    fleet = FleetStatus.model_validate(describe(await request.app[GATEWAY].directory.cards()))
    return web.Response(
        body=fleet.model_dump_json().encode(), content_type="application/json", headers={"Cache-Control": "no-store"}
    )


async def events(request: web.Request) -> web.StreamResponse:
    """History first, then snapshots until the client leaves or the gateway drains. Raises a 503 `ApiError` then."""
    gateway = request.app[GATEWAY]
    if gateway.watch.ended:
        raise draining()
    if request.method == "HEAD":
        return web.Response(content_type=_MEDIA)
    stream = EventStream(request, _MEDIA, heartbeat_s=gateway.heartbeat_s)
    with suppress(ClientGone), gateway.watch.looking():
        await stream.open()
        await stream.send([gateway.watch.history()])
        await _follow(gateway.watch, stream)
    return stream.response


async def _follow(watch: FleetWatch, stream: EventStream) -> None:
    seen = 0
    while True:
        try:
            async with asyncio.timeout(stream.quiet_s()):
                news = await watch.next(seen)
        except TimeoutError:
            await stream.send([PING])
            continue
        if news is None:
            return
        seen, snapshot = news
        await stream.send([snapshot])
