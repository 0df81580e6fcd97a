"""Lines for people about a drafter that `draftmesh join` started, made from the fleet's cards. Pure."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from shared.law.payoff import Measurement, payoff
from shared.law.speedup import RowCosts, alpha_of_counts
from shared.wire.messages import Card, DrafterCard, DrafterCounts, VerifierCard

REFRESH_S: Final = 30.0  # between two lines about the gain at one verifier


class JoinReport:
    """Reports what has changed for one drafter since the last report."""

    def __init__(self, host: str, round_trip_ms: float) -> None:
        """The drafter runs on `host`, from which a round trip to the fleet's Redis takes `round_trip_ms`."""
        self._host = host
        self._round_trip_ms = round_trip_ms
        self._own = ""  # the drafter's id, once its card was seen
        self._met: dict[str, str] = {}  # verifiers that accepted or refused it, with their models
        self._alone = False  # there was no verifier at the last report
        self._told: dict[str, tuple[float, str]] = {}  # by verifier: time and text of the last line about the gain

    def lines(self, cards: Sequence[Card], pid: int, now: float) -> list[str]:
        """The new lines for these cards. The drafter is the process `pid`; `now` is in seconds of a steady clock."""
        own = next((c for c in cards if isinstance(c, DrafterCard) and (c.host, c.pid) == (self._host, pid)), None)
        verifiers = [card for card in cards if isinstance(card, VerifierCard)]
        if own is None:  # a drafter may wait for a verifier to choose its device first
            return list(self._departures(verifiers))
        return [
            *self._introduction(own),
            *self._departures(verifiers),
            *self._verdicts(own, verifiers, _alike(own, cards)),
            *self._gains(own.id, verifiers, now),
        ]

    def _introduction(self, own: DrafterCard) -> Iterator[str]:
        if own.id == self._own:
            return
        self._own = own.id
        self._met.clear()
        self._told.clear()
        if own.kind == "lookup":
            yield "drafting by lookup: it repeats what prompts and answers had before; --draft-model NAME adds a model"
        else:
            speed = f", {1000 / own.step_ms:.0f} tokens/s alone" if own.step_ms else ""
            yield f"drafting with {own.model} on {own.device}{speed}"

    def _departures(self, verifiers: Sequence[VerifierCard]) -> Iterator[str]:
        for gone in self._met.keys() - {card.id for card in verifiers}:
            yield f"{self._met.pop(gone)}: its verifier left"
            self._told.pop(gone, None)
        if not verifiers and not self._alone:
            yield "no verifier is there yet; waiting for one"
        self._alone = not verifiers

    def _verdicts(self, own: DrafterCard, verifiers: Sequence[VerifierCard], alike: Collection[str]) -> Iterator[str]:
        for card in verifiers:
            if card.id in self._met:
                continue
            refusal = dict(card.refused).get(own.id)
            if refusal is None and all(counts.drafter != own.id for counts in card.drafters):
                continue  # this verifier has not read the drafter's card yet
            self._met[card.id] = card.model
            if refusal is not None:
                yield f"cannot draft for {card.model}: {refusal}"
                continue
            if own.kind != "lookup":
                yield f"vocabulary matches {card.model} ({min(own.n_vocab, card.n_vocab):,} tokens)"
                yield expectation(own, card, self._round_trip_ms, alike)

    def _gains(self, own: str, verifiers: Sequence[VerifierCard], now: float) -> Iterator[str]:
        for card in verifiers:
            counts = next((counts for counts in card.drafters if counts.drafter == own), None)
            if counts is None or not counts.accepted:
                continue
            line = gain(card, counts)
            before, told = self._told.get(card.id, (now - REFRESH_S, ""))
            if line != told and now - before >= REFRESH_S:
                self._told[card.id] = (now, line)
                yield line


def _alike(own: DrafterCard, cards: Sequence[Card]) -> set[str]:
    return {
        card.id for card in cards if isinstance(card, DrafterCard) and (card.kind, card.model) == (own.kind, own.model)
    }


def expectation(own: DrafterCard, verifier: VerifierCard, round_trip_ms: float, alike: Collection[str] = ()) -> str:
    """The speed-up to expect from the drafter, by the measurements of both processes at their start.

    The acceptance is what the verifier measured of the drafters `alike`, or else a typical one.
    """
    if not verifier.row_ms or not own.step_ms:
        return f"{verifier.model}: what to expect is not measured yet"
    seen = [
        alpha_of_counts(counts.drafted, counts.accepted, counts.rounds)
        for counts in verifier.drafters
        if counts.rounds and counts.drafter in alike
    ]
    measured = Measurement(
        row_ms=verifier.row_ms,
        alpha=max(seen, default=None),
        draft_ms=own.step_ms,
        round_trip_ms=round_trip_ms,
    )
    found = payoff(measured)
    if found.reason:
        return f"will not pay for {verifier.model} here: {found.reason}"
    plain = 1000 / measured.cost()(1)
    return (
        f"should raise {verifier.model} from {plain:.1f} to {plain * found.expected:.1f} tokens/s"
        f" if {measured.acceptance:.0%} of its guesses are right"
    )


def gain(verifier: VerifierCard, counts: DrafterCounts) -> str:
    """The drafter's measured gain: tokens that no other drafter guessed, and how much faster they make rounds.

    Only the rows for such tokens count as its cost, because other drafters' guesses would have used the others.
    """
    accepted, added = counts.accepted / counts.rounds, counts.added / counts.rounds
    speedup = (1 + accepted) / (1 + accepted - added)
    if verifier.row_ms:
        cost = RowCosts(dict(verifier.row_ms))
        rows = counts.drafted / counts.rounds
        others = rows * (1 - added / accepted)
        speedup *= cost(1 + round(others)) / cost(1 + round(rows))
    return f"{verifier.model}: adds {added:.1f} tokens per round, x{speedup:.1f}"
