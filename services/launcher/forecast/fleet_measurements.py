"""What a running fleet has measured of itself, from its cards: cost of rows, speed of drafters, how many were right."""

from services.launcher.facts.fleet_reader import read_cards
from services.launcher.forecast.forecast import Agreement, alpha_of_counts
from services.launcher.forecast.plan_report import Outlook, Prospect
from shared.errors import StartError
from shared.wire.messages import Card, DrafterCard, DrafterCounts, VerifierCard


async def observe(url: str, round_trip_ms: float) -> Outlook:
    """Read the registry at `url`. Raises `StartError` if nobody there has measured anything yet."""
    return from_cards(await read_cards(url), round_trip_ms)


def from_cards(cards: list[Card], round_trip_ms: float) -> Outlook:
    """The outlook of the verifier that verified most drafts."""
    verifiers = [card for card in cards if isinstance(card, VerifierCard) and card.row_ms]
    if not verifiers:
        raise StartError("--redis", "names a fleet without a verifier", "start one with `draftmesh up`")
    verifier = max(verifiers, key=lambda card: sum(counts.rounds for counts in card.drafters))
    drafters = {card.id: card for card in cards if isinstance(card, DrafterCard)}
    prospects = [
        _prospect(drafters[counts.drafter], counts)
        for counts in verifier.drafters
        if counts.rounds and counts.drafter in drafters
    ]
    if not prospects:
        raise StartError(
            "--redis",
            "names a fleet that has verified no drafts yet",
            "send it a request with drafts, or measure models",
        )
    idle = sorted({card.model for card in drafters.values() if card.kind == "model" and not _step_ms(card)})
    return Outlook(
        target=verifier.model,
        device=verifier.device,
        row_ms=dict(verifier.row_ms),
        round_trip_ms=round_trip_ms,
        source="fleet",
        prospects=prospects,
        notes=[
            f"{model} is idle now, so how fast it drafts is not known and taken as no time at all." for model in idle
        ],
    )


def _prospect(card: DrafterCard, counts: DrafterCounts) -> Prospect:
    alpha = alpha_of_counts(counts.drafted, counts.accepted, counts.rounds)
    # Of the draws that judged a draft, `accepted` agreed; alpha says how many of the rounds ended in a miss.
    judged = round(counts.accepted / alpha) if alpha else counts.rounds
    return Prospect(
        draft=card.model or card.kind,
        device=card.device,
        step_ms=_step_ms(card),
        temperature=None,
        agreement=Agreement(judged, counts.accepted),
    )


def _step_ms(card: DrafterCard) -> float:
    """What a draft takes; 0 for lookup, which gives all at once, and where it is not known."""
    if card.step_ms or card.kind != "model" or not card.tokens_per_second:
        return card.step_ms
    return 1000.0 / card.tokens_per_second  # at most: a drafter that is ahead rests
