"""The drafters as the verifier sees them: who may help, how good each was, how long its next draft takes. No I/O."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from shared.law.acceptance import Acceptance
from shared.wire.messages import DrafterCard, DrafterCounts

# What a drafter's step must be worth. On the target's own memory a step slows the target by some seventh of its time
# (measured on two cores); elsewhere it costs only what a better guess would have been drafted in.
_WORTH_SHARED: Final = 0.15
_WORTH_APART: Final = 0.02
_STEP_WEIGHT: Final = 0.2  # of a new step time; a drafter's load changes within a few steps

# Drafters of one kin say the same: under shared noise the same model draws the same tokens, on whatever device.
Kin = tuple[str, str, str]


@dataclass(slots=True, eq=False)
class Drafter:
    """One drafter. Counts are of this verifier's rounds only."""

    card: DrafterCard
    acceptance: Acceptance = field(default_factory=Acceptance)
    step_ms: float = 0.0
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    stale: int = 0
    added: int = 0  # accepted tokens that no other drafter of the request had guessed
    round_trip_ms: float = 0.0  # as the request that heard from it last has learned it
    asked: int = 0  # rounds of requests that it drafts for
    requests: int = 0  # that we asked it to draft for

    def judged(self, drafted: int, accepted: int) -> None:
        """A round verified this many of its guesses."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted

    def was_stale(self) -> None:
        """A proposal came for what had been decided otherwise."""
        self.stale += 1

    def was_needed(self) -> None:
        """A token was accepted that no other drafter of the request had guessed."""
        self.added += 1

    def was_asked(self) -> None:
        """A request that it drafts for had a round."""
        self.asked += 1

    def observe_hop(self, hop_ms: float) -> None:
        """A request learned anew how long a message to it and back takes."""
        self.round_trip_ms = hop_ms

    def observe_step(self, step_us: int) -> float:
        """Take a reported step time in; returns the smoothed one in milliseconds."""
        step_ms = step_us / 1000
        self.step_ms = step_ms if not self.step_ms else self.step_ms + _STEP_WEIGHT * (step_ms - self.step_ms)
        return self.step_ms

    @property
    def kin(self) -> Kin:
        return self.card.kind, self.card.model, self.card.fingerprint

    @property
    def has_room(self) -> bool:
        return self.requests < self.card.capacity

    @property
    def counts(self) -> DrafterCounts:
        return DrafterCounts(
            drafter=self.card.id,
            drafted=self.drafted,
            accepted=self.accepted,
            rounds=self.rounds,
            stale=self.stale,
            added=self.added,
            round_trip_ms=self.round_trip_ms,
            asked=self.asked,
        )


def worth(card: DrafterCard, host: str, device: str) -> float:
    """The least probability of being needed at which a guess is worth a drafter's step, beside a target on `device`."""
    return _WORTH_SHARED if (card.host, card.device) == (host, device) else _WORTH_APART


class Drafters:
    """All drafters that registered and agree with the target's vocabulary."""

    def __init__(self) -> None:
        self._known: dict[str, Drafter] = {}
        self.refused: dict[str, str] = {}

    def __getitem__(self, name: str) -> Drafter:
        return self._known[name]

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[Drafter]:
        return iter(self._known.values())

    def update(self, cards: Iterable[DrafterCard]) -> tuple[set[str], set[str]]:
        """Take over the living; returns the names that joined and those that are gone."""
        living = {card.id: card for card in cards if card.id not in self.refused}
        joined, gone = living.keys() - self._known.keys(), self._known.keys() - living.keys()
        for name in gone:
            del self._known[name]
        for name, card in living.items():
            if name in self._known:
                self._known[name].card = card
            else:
                self._known[name] = Drafter(card)
        return joined, gone
