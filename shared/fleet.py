"""The fleet as plain values: what `status` shows as tables and prints as JSON, so that both say the same. Pure.

Keys, which stay; more may come. None (JSON: null) is what nobody knows, and units are in the names.
  processes   kind (gateway, verifier, drafter, lookup drafter), id, host, pid, device, model, load (a phrase),
              tokens_per_second, created (unix seconds); of a gateway also url
  verifiers   id, model, aliases, exactness and exactness_note, layout, speculation, ctx, tokens_per_second,
              cache_hit_rate
    row_ms, row_cost         by rows of a decode: ms, and in single steps
    accepted_per_position    accepted drafts by their place in the round
    round_starts, drafts_ready   how rounds began, and the share of them that found drafts ready
    counters                 since the start
    refused                  reasons by drafter id
  drafters    one entry per verifier that uses it: id, model, tokens_per_second, verifier, drafted, accepted, added
              (accepted tokens that no other drafter had guessed), acceptance_rate, tokens_per_round, stale, refused,
              step_ms (what one token takes it)
  requests    those that run: request_id, verifier, offset, tokens_per_round, drafters, reason (why it is not
              speculating; empty if it is)
  names       what requests may ask for: name, model; conflicts: aliases without effect: alias, model, winner, note
  deserted    requests that wait for a model which nobody serves any more, by gateway
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from msgspec import structs

from shared.messages import Card, DrafterCard, DrafterCounts, GatewayCard, RoundStarts, VerifierCard
from shared.names import resolve

Row = dict[str, Any]
ENDS: Final = ("accepted", "refused", "plain")  # what a round may have ended with


def describe(cards: Sequence[Card]) -> dict[str, list[Row]]:
    """Processes, names of models, verifiers, drafters (one entry per verifier that uses it) and running requests.

    Beside them what needs looking at: aliases without effect, and requests whose model has no verifier any more.
    """
    verifiers = [card for card in cards if isinstance(card, VerifierCard)]
    names = resolve(card for card in verifiers if not card.draining)
    return {
        "processes": [_process(card) for card in cards],
        "verifiers": [_verifier(card) for card in verifiers],
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


def _process(card: Card) -> Row:
    row: Row = {"kind": "", "id": card.id, "host": card.host, "pid": card.pid, "device": "", "model": "", "load": ""}
    row |= {"tokens_per_second": None, "created": card.created or None}
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


def _verifier(card: VerifierCard) -> Row:
    costs = dict(card.row_ms)
    single = costs.get(1, 0.0)
    looked_up = card.counters.get("prompt_tokens", 0)
    return {
        "id": card.id,
        "model": card.model,
        "aliases": list(card.aliases),
        "exactness": card.exactness,
        "exactness_note": card.exactness_note,
        "layout": card.layout,
        "speculation": card.speculation.value,
        "ctx": card.n_ctx,
        "tokens_per_second": card.tokens_per_second,
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
        "model": card.model or card.kind,
        "tokens_per_second": card.tokens_per_second,
        "step_ms": card.step_ms or None,
        "verifier": None,
        "drafted": 0,
        "accepted": 0,
        "added": 0,
        "acceptance_rate": None,
        "tokens_per_round": None,
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
        "acceptance_rate": counts.accepted / counts.drafted if counts.drafted else None,
        "tokens_per_round": counts.accepted / counts.rounds + 1 if counts.rounds else None,
        "stale": counts.stale,
    }


def _request(card: VerifierCard, index: int) -> Row:
    request = card.requests[index]
    return {
        "request_id": request.request_id,
        "verifier": card.id,
        "offset": request.offset,
        "tokens_per_round": request.tokens_per_round,
        "drafters": list(request.drafters),
        "reason": request.reason,
    }
