"""Makes the `Measurement` that `shared.law.payoff` judges from the cards of a running fleet. Pure."""

import math
from collections.abc import Iterable

from shared.fleet.neighbours import contend
from shared.law.payoff import Measurement, payoff
from shared.law.speedup import alpha_of_counts
from shared.wire.messages import Card, DrafterCard, DrafterCounts, VerifierCard


def of_drafter(
    verifier: VerifierCard, counts: DrafterCounts, drafter: DrafterCard, round_trip_ms: float | None = None
) -> Measurement:
    """The measurement of a drafter and a verifier that has verified its drafts.

    `round_trip_ms` None: as the verifier measured it.
    """
    return Measurement(
        row_ms=_rows(verifier),
        alpha=alpha_of_counts(counts.drafted, counts.accepted, counts.rounds),
        draft_ms=step_ms(drafter),
        round_trip_ms=counts.round_trip_ms if round_trip_ms is None else round_trip_ms,
        seen=verifier.speedup or None,
        provisional=verifier.provisional,
        turns=verifier.sharing == "turns" and contend(drafter.site, verifier.site),
    )


def of_verifier(verifier: VerifierCard, cards: Iterable[Card]) -> Measurement:
    """The measurement of the verifier with its most promising drafter; before any drafts only the costs of rows."""
    drafters = {card.id: card for card in cards if isinstance(card, DrafterCard)}
    rows = _rows(verifier)
    found = [
        of_drafter(verifier, counts, drafters[counts.drafter])
        for counts in verifier.drafters
        if rows and counts.rounds and counts.drafter in drafters
    ]
    return max(
        found,
        key=lambda measured: payoff(measured).expected,
        default=Measurement(row_ms=rows, can_roll_back=verifier.can_roll_back, provisional=verifier.provisional),
    )


def step_ms(card: DrafterCard) -> float:
    """The milliseconds of a draft; 0 for lookup, which gives all drafts at once, and if unknown."""
    if card.step_ms or card.kind != "model" or not card.tokens_per_second:
        return card.step_ms
    return 1000.0 / card.tokens_per_second  # an upper bound, because a drafter that is ahead rests


def _rows(verifier: VerifierCard) -> tuple[tuple[int, float], ...]:
    """The card's row costs without impossible entries."""
    return tuple((rows, ms) for rows, ms in verifier.row_ms if rows > 0 and 0.0 < ms < math.inf)
