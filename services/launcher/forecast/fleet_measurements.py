"""What a running fleet has measured of itself, from its cards: cost of rows, speed of drafters, how many were right."""

from services.launcher.forecast.forecast import Agreement
from services.launcher.forecast.plan_report import Outlook, Prospect
from shared.errors import StartError
from shared.fleet import measured
from shared.wire.messages import Card, DrafterCard, DrafterCounts, VerifierCard


def from_cards(cards: list[Card], round_trip_ms: float | None) -> Outlook:
    """The outlook of the verifier that verified most drafts. `round_trip_ms` None: as it measured it.

    Raises `StartError` if no process there has measured anything yet.
    """
    verifiers = [card for card in cards if isinstance(card, VerifierCard) and card.row_ms]
    if not verifiers:
        raise StartError("--redis", "names a fleet without a verifier", "start one with `draftmesh up`")
    verifier = max(verifiers, key=lambda card: sum(counts.rounds for counts in card.drafters))
    drafters = {card.id: card for card in cards if isinstance(card, DrafterCard)}
    prospects = [
        _prospect(verifier, drafters[counts.drafter], counts, round_trip_ms)
        for counts in verifier.drafters
        if counts.rounds and counts.drafter in drafters
    ]
    if not prospects:
        raise StartError(
            "--redis",
            "names a fleet that has verified no drafts yet",
            "send it a request with drafts, or measure models",
        )
    idle = sorted({card.model for card in drafters.values() if card.kind == "model" and not measured.step_ms(card)})
    return Outlook(
        target=verifier.model,
        device=verifier.device,
        row_ms=dict(verifier.row_ms),
        source="fleet",
        prospects=prospects,
        notes=[
            f"{model} is idle now, so how fast it drafts is not known and taken as no time at all." for model in idle
        ],
    )


def _prospect(verifier: VerifierCard, card: DrafterCard, counts: DrafterCounts, rtt: float | None) -> Prospect:
    measurement = measured.of_drafter(verifier, counts, card, rtt)
    # Of the draws that judged a draft, `accepted` agreed; alpha says how many of the rounds ended in a miss.
    judged = round(counts.accepted / measurement.acceptance) if measurement.acceptance else counts.rounds
    return Prospect(
        draft=card.model or card.kind,
        device=card.device,
        temperature=None,
        agreement=Agreement(judged, counts.accepted),
        measurement=measurement,
    )
