"""What a running fleet has measured of itself, from its cards, as `shared.law.payoff` wants it. Pure."""

import math
from collections.abc import Iterable

from shared.law.payoff import Measurement, payoff
from shared.law.speedup import alpha_of_counts
from shared.wire.messages import Card, DrafterCard, DrafterCounts, VerifierCard


def of_drafter(
    verifier: VerifierCard, counts: DrafterCounts, drafter: DrafterCard, round_trip_ms: float | None = None
) -> Measurement:
    """One drafter of a verifier that has verified its drafts. `round_trip_ms` None: as the verifier measured it."""
    return Measurement(
        row_ms=_rows(verifier),
        alpha=alpha_of_counts(counts.drafted, counts.accepted, counts.rounds),
        draft_ms=step_ms(drafter),
        round_trip_ms=counts.round_trip_ms if round_trip_ms is None else round_trip_ms,
        seen=verifier.speedup or None,
    )


def of_verifier(verifier: VerifierCard, cards: Iterable[Card]) -> Measurement:
    """The drafter of the verifier from which most is to be expected; the cost of rows alone before any was verified."""
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
        default=Measurement(row_ms=rows, can_roll_back=verifier.can_roll_back),
    )


def step_ms(card: DrafterCard) -> float:
    """What a draft takes; 0 for lookup, which gives all at once, and where it is not known."""
    if card.step_ms or card.kind != "model" or not card.tokens_per_second:
        return card.step_ms
    return 1000.0 / card.tokens_per_second  # at most: a drafter that is ahead rests


def _rows(verifier: VerifierCard) -> tuple[tuple[int, float], ...]:
    """What the card says of rows, without what no decode can take."""
    return tuple((rows, ms) for rows, ms in verifier.row_ms if rows > 0 and 0.0 < ms < math.inf)
