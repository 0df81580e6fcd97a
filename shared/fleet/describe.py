"""Makes the fleet's values from its cards. Pure."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import structs

from shared.fleet import measured
from shared.fleet.fleet_values import (
    DesertedRequests,
    DrafterStatus,
    FleetStatus,
    ModelName,
    NameConflict,
    PayoffStatus,
    ProcessStatus,
    RoundStart,
    RunningRequest,
    Totals,
    VerifierStatus,
)
from shared.fleet.model_names import resolve
from shared.fleet.verdict import verdict
from shared.law.payoff import Measurement, payoff, sentence
from shared.wire.messages import Card, DrafterCard, DrafterCounts, GatewayCard, RoundStarts, VerifierCard

ENDS: Final = ("accepted", "refused", "plain")  # how a round may have ended


def describe(cards: Sequence[Card]) -> FleetStatus:
    """The values of the processes with these cards."""
    verifiers = [card for card in cards if isinstance(card, VerifierCard)]
    names = resolve(card for card in verifiers if not card.draining)
    waiting = _waiting(cards)
    fleet = FleetStatus(
        verdict="",
        totals=_totals(verifiers, waiting),
        processes=tuple(_process(card) for card in cards),
        verifiers=tuple(_verifier(card, cards, waiting) for card in verifiers),
        drafters=tuple(row for card in cards if isinstance(card, DrafterCard) for row in _drafter(card, verifiers)),
        requests=tuple(
            RunningRequest(model=card.model, verifier=card.id, **structs.asdict(request))
            for card in verifiers
            for request in card.requests
        ),
        names=(
            *(ModelName(name=model, model=model) for model in names.models),
            *(ModelName(name=alias, model=model) for alias, model in names.aliases.items()),
        ),
        conflicts=tuple(NameConflict(**asdict(one), note=str(one)) for one in names.conflicts),
        deserted=tuple(
            DesertedRequests(gateway=card.id, **structs.asdict(one))
            for card in cards
            if isinstance(card, GatewayCard)
            for one in card.deserted
        ),
    )
    return structs.replace(fleet, verdict=verdict(fleet))


def _waiting(cards: Sequence[Card]) -> dict[str, int]:
    """Requests that no verifier has taken yet, by model: every gateway reports all of them, some a moment late."""
    found: dict[str, int] = {}
    for card in cards:
        if isinstance(card, GatewayCard):
            for model, count in card.waiting:
                found[model] = max(count, found.get(model, 0))
    return found


def _totals(verifiers: Sequence[VerifierCard], waiting: dict[str, int]) -> Totals:
    known = [card for card in verifiers if card.speedup]
    # Verifiers that decode now count by their plain speed; in an idle fleet all count the same.
    weights = [card.plain_tokens_per_second for card in known]
    weights = weights if sum(weights) else [1.0] * len(known)
    return Totals(
        tokens_per_second=sum(card.tokens_per_second for card in verifiers),
        plain_tokens_per_second=sum(card.plain_tokens_per_second for card in verifiers),
        speedup=_mean([card.speedup for card in known], weights),
        tokens_per_round=_mean([card.tokens_per_round for card in known], weights),
        running=sum(len(card.requests) for card in verifiers),
        slots=sum(card.slots for card in verifiers),
        waiting=sum(waiting.values()) if waiting else None,
        cells=sum(card.cells for card in verifiers),
        cells_used=sum(card.cells_used for card in verifiers),
        cells_running=sum(card.cells_running for card in verifiers),
    )


def _mean(values: Sequence[float], weights: Sequence[float]) -> float | None:
    if not values:
        return None
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _process(card: Card) -> ProcessStatus:
    device, model, url, speed = "", "", "", None
    match card:
        case GatewayCard():
            kind, load, url = "gateway", f"{card.streams} streams", card.url
        case VerifierCard():
            kind = "verifier"
            load = f"{len(card.requests)} of {card.slots} requests" + (", draining" if card.draining else "")
        case DrafterCard():
            kind = "drafter" if card.kind == "model" else f"{card.kind} drafter"
            load = f"{card.sessions} of {card.capacity} requests"
    if not isinstance(card, GatewayCard):
        device, model, speed = card.device, card.model, card.tokens_per_second
    return ProcessStatus(
        kind=kind,
        id=card.id,
        host=card.host,
        pid=card.pid,
        device=device,
        model=model,
        load=load,
        tokens_per_second=speed,
        created=card.created or None,
        url=url,
    )


def _verifier(card: VerifierCard, cards: Sequence[Card], waiting: dict[str, int]) -> VerifierStatus:
    costs = dict(card.row_ms)
    single = costs.get(1, 0.0)
    looked_up = card.counters.get("prompt_tokens", 0)
    drafted = card.counters.get("draft_tokens", 0)
    ready: dict[str, float | None] = {"all": _ready(card.starts)}
    return VerifierStatus(
        id=card.id,
        host=card.host,
        device=card.device,
        model=card.model,
        aliases=tuple(card.aliases),
        exactness=card.exactness,
        exactness_note=card.exactness_note,
        sharing=card.sharing,
        layout=card.layout,
        speculation=card.speculation.value,
        ctx=card.n_ctx,
        slots=card.slots,
        running=len(card.requests),
        waiting=waiting.get(card.model),
        draining=card.draining,
        tokens_per_second=card.tokens_per_second,
        plain_tokens_per_second=card.plain_tokens_per_second,
        speedup=card.speedup or None,
        tokens_per_round=card.tokens_per_round or None,
        acceptance_rate=card.counters.get("accepted_tokens", 0) / drafted if drafted else None,
        cells=card.cells,
        cells_used=card.cells_used,
        cells_running=card.cells_running,
        cache_hit_rate=card.counters.get("cached_tokens", 0) / looked_up if looked_up else None,
        row_ms=costs,
        row_cost={rows: round(ms / single, 2) for rows, ms in costs.items()} if single else {},
        row_source=_row_source(card),
        payoff=_payoff(measured.of_verifier(card, cards)),
        accepted_per_position=tuple(card.accepted_per_position),
        round_starts=tuple(RoundStart(**structs.asdict(start)) for start in card.starts),
        drafts_ready=ready | {end: _ready([start for start in card.starts if start.after == end]) for end in ENDS},
        counters=dict(card.counters),
        refused=dict(card.refused),
    )


def _row_source(card: VerifierCard) -> str:
    """Where the row costs come from, and since when: a verifier starts with its calibration, and each decode refines
    it."""
    start = (
        f"{datetime.fromtimestamp(card.created, UTC):%Y-%m-%d %H:%M} UTC" if card.created else "the verifier's start"
    )
    decodes = card.counters.get("decodes", 0)
    return f"{decodes:,} decodes since {start}" if decodes else f"calibration, checked at {start}"


def _payoff(measurement: Measurement) -> PayoffStatus:
    found: dict[str, Any] = dict.fromkeys(("width", "speedup", "expected", "ceiling")) | {"reason": ""}
    if measurement.row_ms:
        found = asdict(payoff(measurement))
    return PayoffStatus(**found, sentence=sentence(measurement))


def _ready(starts: Sequence[RoundStarts]) -> float | None:
    rounds = sum(start.rounds for start in starts)
    return sum(start.ready for start in starts) / rounds if rounds else None


def _drafter(card: DrafterCard, verifiers: Sequence[VerifierCard]) -> list[DrafterStatus]:
    rows = []
    for verifier in verifiers:
        counts = next((counts for counts in verifier.drafters if counts.drafter == card.id), None)
        refused = dict(verifier.refused).get(card.id)
        if counts or refused:
            rows.append(_drafts(card, verifier.id, counts, refused))
    return rows or [_drafts(card, None, None, None)]


def _drafts(card: DrafterCard, verifier: str | None, known: DrafterCounts | None, refused: str | None) -> DrafterStatus:
    counts = known or DrafterCounts(drafter=card.id, drafted=0, accepted=0, rounds=0, stale=0)
    return DrafterStatus(
        id=card.id,
        kind=card.kind,
        host=card.host,
        device=card.device,
        model=card.model or card.kind,
        sessions=card.sessions,
        capacity=card.capacity,
        tokens_per_second=card.tokens_per_second,
        step_ms=card.step_ms or None,
        verifier=verifier,
        drafted=counts.drafted,
        accepted=counts.accepted,
        added=counts.added,
        adds=counts.added / counts.asked if counts.asked else None,
        acceptance_rate=counts.accepted / counts.drafted if counts.drafted else None,
        tokens_per_round=counts.accepted / counts.rounds + 1 if counts.rounds else None,
        round_trip_ms=counts.round_trip_ms or None,
        stale=counts.stale,
        refused=refused,
    )
