"""The fleet as plain values for `status`, `/status` and the page, so that all show the same. Pure.

Keys are stable; new ones may come. Unknown values are None (JSON: null), and units are in the names. Speeds are of the
last seconds, `speedup` and `tokens_per_round` of verifiers of the last rounds, however long ago.
  verdict     a sentence: how much speculation helps now, or what is missing
  totals      of all verifiers: tokens_per_second, plain_tokens_per_second (what plain decoding would give
              for the same requests in the same time), speedup, tokens_per_round, running, slots, waiting (requests
              that no verifier has taken yet), cells (tokens that fit in the KV cache), cells_used (prefix cache
              included), cells_running
  processes   kind (gateway, verifier, drafter, lookup drafter), id, host, pid, device, model, load (a phrase),
              tokens_per_second, created (unix seconds), url (a gateway's)
  verifiers   id, host, device, model, aliases, exactness and exactness_note, layout, speculation, ctx, draining,
              cache_hit_rate, acceptance_rate, and its share of each of the totals
    row_ms, row_cost         by rows of a decode: ms, and relative to one row
    accepted_per_position    accepted drafts by their place in the round
    round_starts, drafts_ready   how rounds began, and the share of them that found drafts ready
    counters                 since the start
    refused                  reasons by drafter id
  drafters    one entry per verifier that uses it: id, kind, host, device, model, sessions, capacity,
              tokens_per_second, verifier, drafted, accepted, added (accepted tokens that no other drafter of the
              request had guessed), adds (these per round of the requests that it drafts for), acceptance_rate,
              tokens_per_round, round_trip_ms, stale, refused, step_ms (what one token takes it)
  requests    those that run: request_id, model, verifier, age_ms, offset, tokens_per_second, tokens_per_round,
              drafters, reason (why it is not speculating; empty if it is)
  names       what requests may ask for: name, model
  conflicts   aliases without effect: alias, model, winner, note
  deserted    requests whose model has no verifier any more: gateway, model, requests, reason
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from msgspec import structs

from shared.fleet.model_names import resolve
from shared.fleet.verdict import verdict
from shared.wire.messages import Card, DrafterCard, DrafterCounts, GatewayCard, RoundStarts, VerifierCard

Row = dict[str, Any]
Fleet = dict[str, Any]
ENDS: Final = ("accepted", "refused", "plain")  # how a round may have ended


def describe(cards: Sequence[Card]) -> Fleet:
    """The values above, from these cards."""
    verifiers = [card for card in cards if isinstance(card, VerifierCard)]
    names = resolve(card for card in verifiers if not card.draining)
    waiting = _waiting(cards)
    fleet: Fleet = {
        "totals": _totals(verifiers, waiting),
        "processes": [_process(card) for card in cards],
        "verifiers": [_verifier(card, waiting) for card in verifiers],
        "drafters": [row for card in cards if isinstance(card, DrafterCard) for row in _drafter(card, verifiers)],
        "requests": [_request(card, index) for card in verifiers for index in range(len(card.requests))],
        "names": [{"name": model, "model": model} for model in names.models]
        + [{"name": alias, "model": model} for alias, model in names.aliases.items()],
        "conflicts": [asdict(one) | {"note": str(one)} for one in names.conflicts],
        "deserted": [
            {"gateway": card.id} | structs.asdict(one)
            for card in cards
            if isinstance(card, GatewayCard)
            for one in card.deserted
        ],
    }
    sentence = verdict(fleet["totals"], fleet["verifiers"], fleet["drafters"], fleet["requests"])
    return {"verdict": sentence, **fleet}


def _waiting(cards: Sequence[Card]) -> dict[str, int]:
    """Requests that no verifier has taken yet, by model: every gateway reports all of them, some a moment late."""
    found: dict[str, int] = {}
    for card in cards:
        if isinstance(card, GatewayCard):
            for model, count in card.waiting:
                found[model] = max(count, found.get(model, 0))
    return found


def _totals(verifiers: Sequence[VerifierCard], waiting: dict[str, int]) -> Row:
    known = [card for card in verifiers if card.speedup]
    # Verifiers that decode now count by their plain speed; in an idle fleet all count the same.
    weights = [card.plain_tokens_per_second for card in known]
    weights = weights if sum(weights) else [1.0] * len(known)
    return {
        "tokens_per_second": sum(card.tokens_per_second for card in verifiers),
        "plain_tokens_per_second": sum(card.plain_tokens_per_second for card in verifiers),
        "speedup": _mean([card.speedup for card in known], weights),
        "tokens_per_round": _mean([card.tokens_per_round for card in known], weights),
        "running": sum(len(card.requests) for card in verifiers),
        "slots": sum(card.slots for card in verifiers),
        "waiting": sum(waiting.values()) if waiting else None,
        "cells": sum(card.cells for card in verifiers),
        "cells_used": sum(card.cells_used for card in verifiers),
        "cells_running": sum(card.cells_running for card in verifiers),
    }


def _mean(values: Sequence[float], weights: Sequence[float]) -> float | None:
    if not values:
        return None
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _process(card: Card) -> Row:
    row: Row = {"kind": "", "id": card.id, "host": card.host, "pid": card.pid, "device": "", "model": "", "load": ""}
    row |= {"tokens_per_second": None, "created": card.created or None, "url": ""}
    match card:
        case VerifierCard():
            load = f"{len(card.requests)} of {card.slots} requests" + (", draining" if card.draining else "")
            row |= {"kind": "verifier", "device": card.device, "model": card.model, "load": load}
            row["tokens_per_second"] = card.tokens_per_second
        case DrafterCard():
            load = f"{card.sessions} of {card.capacity} requests"
            kind = "lookup drafter" if card.kind == "lookup" else "drafter"
            row |= {"kind": kind, "device": card.device, "model": card.model, "load": load}
            row["tokens_per_second"] = card.tokens_per_second
        case GatewayCard():
            row |= {"kind": "gateway", "load": f"{card.streams} streams", "url": card.url}
    return row


def _verifier(card: VerifierCard, waiting: dict[str, int]) -> Row:
    costs = dict(card.row_ms)
    single = costs.get(1, 0.0)
    looked_up = card.counters.get("prompt_tokens", 0)
    drafted = card.counters.get("draft_tokens", 0)
    return {
        "id": card.id,
        "host": card.host,
        "device": card.device,
        "model": card.model,
        "aliases": list(card.aliases),
        "exactness": card.exactness,
        "exactness_note": card.exactness_note,
        "layout": card.layout,
        "speculation": card.speculation.value,
        "ctx": card.n_ctx,
        "slots": card.slots,
        "running": len(card.requests),
        "waiting": waiting.get(card.model),
        "draining": card.draining,
        "tokens_per_second": card.tokens_per_second,
        "plain_tokens_per_second": card.plain_tokens_per_second,
        "speedup": card.speedup or None,
        "tokens_per_round": card.tokens_per_round or None,
        "acceptance_rate": card.counters.get("accepted_tokens", 0) / drafted if drafted else None,
        "cells": card.cells,
        "cells_used": card.cells_used,
        "cells_running": card.cells_running,
        "cache_hit_rate": card.counters.get("cached_tokens", 0) / looked_up if looked_up else None,
        "row_ms": costs,
        "row_cost": {rows: round(ms / single, 2) for rows, ms in costs.items()} if single else {},
        "accepted_per_position": list(card.accepted_per_position),
        "round_starts": [structs.asdict(start) for start in card.starts],
        "drafts_ready": {
            "all": _ready(card.starts),
            **{end: _ready([start for start in card.starts if start.after == end]) for end in ENDS},
        },
        "counters": dict(card.counters),
        "refused": dict(card.refused),
    }


def _ready(starts: Sequence[RoundStarts]) -> float | None:
    """The share of these rounds that found drafts ready; None if there were none."""
    rounds = sum(start.rounds for start in starts)
    return sum(start.ready for start in starts) / rounds if rounds else None


def _drafter(card: DrafterCard, verifiers: Sequence[VerifierCard]) -> list[Row]:
    base: Row = {
        "id": card.id,
        "kind": card.kind,
        "host": card.host,
        "device": card.device,
        "model": card.model or card.kind,
        "sessions": card.sessions,
        "capacity": card.capacity,
        "tokens_per_second": card.tokens_per_second,
        "step_ms": card.step_ms or None,
        "verifier": None,
        "drafted": 0,
        "accepted": 0,
        "added": 0,
        "adds": None,
        "acceptance_rate": None,
        "tokens_per_round": None,
        "round_trip_ms": None,
        "stale": 0,
        "refused": None,
    }
    rows = []
    for verifier in verifiers:
        counts = next((counts for counts in verifier.drafters if counts.drafter == card.id), None)
        refused = dict(verifier.refused).get(card.id)
        if counts or refused:
            rows.append(base | {"verifier": verifier.id, "refused": refused} | (_counts(counts) if counts else {}))
    return rows or [base]


def _counts(counts: DrafterCounts) -> Row:
    return {
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "added": counts.added,
        "adds": counts.added / counts.asked if counts.asked else None,
        "acceptance_rate": counts.accepted / counts.drafted if counts.drafted else None,
        "tokens_per_round": counts.accepted / counts.rounds + 1 if counts.rounds else None,
        "round_trip_ms": counts.round_trip_ms or None,
        "stale": counts.stale,
    }


def _request(card: VerifierCard, index: int) -> Row:
    request = card.requests[index]
    return {
        "request_id": request.request_id,
        "model": card.model,
        "verifier": card.id,
        "age_ms": request.age_ms,
        "offset": request.offset,
        "tokens_per_second": request.tokens_per_second,
        "tokens_per_round": request.tokens_per_round,
        "drafters": list(request.drafters),
        "reason": request.reason,
    }
