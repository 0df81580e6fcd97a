"""The drafters as the verifier sees them: which may draft, how good their guesses are, how fast they are. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from services.verifier.turns import Mode, Partner
from shared.fleet import neighbours
from shared.law.acceptance import Acceptance
from shared.wire.messages import NOWHERE, DrafterCard, DrafterCounts, Site

FIRST_HOP_MS: Final = 1.0  # two hops through Redis on one host, until a session has measured them

# The probability that a guess is needed must reach this to justify the drafter's step. On the target's own device a
# step slows the target by about a seventh of the step's time (measured on two cores). Elsewhere it costs only the time
# that a better guess would have had.
_WORTH_SHARED: Final = 0.15
_WORTH_APART: Final = 0.02
_STEP_WEIGHT: Final = 0.2  # weight of a new step time; a drafter's load changes within a few steps

_KNOWN: Final = 32  # verdicts after which a drafter's acceptance is more than a guess
# How many bytes of proposals a drafter may send for each hint that it gets; an honest one sends about a thousand.
_PER_HINT: Final = 8 << 10
# What it may send beyond that at once, and the most that it can save up.
_AT_ONCE: Final = 256 << 10
_SAVED: Final = 1 << 20

# Kind, model and vocabulary. Drafters of one kin guess the same tokens on any device, because they share the noise.
Kin = tuple[str, str, str]


@dataclass(slots=True, eq=False)
class Drafter:
    """One drafter. Counts only this verifier's rounds. Only this module writes the fields."""

    card: DrafterCard
    counts: DrafterCounts
    acceptance: Acceptance = field(default_factory=Acceptance)
    step_ms: float = 0.0
    requests: int = 0  # requests that it drafts for now
    allowance: int = _AT_ONCE  # bytes of proposals that it may still send
    contends: bool = False  # it computes on the target's own cores or device
    fits: bool = True  # there are cores for both at the same time
    verdicts: int = 0  # on its guesses
    passed_over: int = 0  # requests in a row for which it was not asked, because it does not pay
    _steps: dict[Mode, float] = field(default_factory=dict)  # its last step time in each way of sharing

    def was_assigned(self) -> None:
        """It drafts for one more request."""
        self.requests += 1

    def was_released(self) -> None:
        """It drafts for one request fewer."""
        self.requests -= 1

    def judge(self, score: float, accepted: bool, rank: int) -> None:
        """A verdict on a guess of its."""
        self.verdicts += 1
        self.acceptance.learn(score, accepted, rank)

    def promises(self, pays: bool, every: int) -> bool:
        """Whether to ask it to draft for a new request: if it pays or is hardly known, or else for one of `every`."""
        asked = pays or self.verdicts < _KNOWN or self.passed_over + 1 >= every
        self.passed_over = 0 if asked else self.passed_over + 1
        return not self.passed_over

    def was_asked(self) -> None:
        """It got a hint, so it may send more proposals."""
        self.allowance = min(_SAVED, self.allowance + _PER_HINT)

    def sent(self, size: int) -> bool:
        """It sent proposals that cost `size` bytes to read. False if that is more than it was asked for."""
        self.allowance -= size
        return self.allowance >= 0

    def count(self, **more: int) -> None:
        """Add to the counts of these names."""
        self.counts = replace(self.counts, **{name: getattr(self.counts, name) + one for name, one in more.items()})

    def observe_hop(self, hop_ms: float) -> None:
        """A request measured again how long a message to it and back takes."""
        self.counts = replace(self.counts, round_trip_ms=hop_ms)

    def observe_step(self, step_us: int) -> float:
        """Smooth in a step time that the drafter reported; returns the smoothed time in milliseconds."""
        step_ms = step_us / 1000
        self.step_ms = step_ms if not self.step_ms else self.step_ms + _STEP_WEIGHT * (step_ms - self.step_ms)
        return self.step_ms

    def changed(self, before: Mode, mode: Mode) -> None:
        """It computes with other cores from now on, so its steps take another time."""
        self._steps[before] = self.step_ms
        self.step_ms = self._step_in(mode)

    def partner(self, present: Mode) -> Partner:
        """What the choice between turns and drafting beside the target depends on."""
        turn, beside = (self.step_ms if mode is present else self._step_in(mode) for mode in (Mode.TURNS, Mode.BESIDE))
        return Partner(self.acceptance.mean, self.counts.round_trip_ms or FIRST_HOP_MS, turn, beside, self.fits)

    @property
    def at_best(self) -> Partner:
        """It, if all its guesses were right and its steps took what it measured at its start."""
        return Partner(1.0, 0.0, self.card.step_ms, self.card.beside_step_ms or self.card.step_ms, self.fits)

    def _step_in(self, mode: Mode) -> float:
        """Its step in another mode: as it last was, or else as the drafter measured it at its start."""
        measured = self.card.beside_step_ms or self.card.step_ms if mode is Mode.BESIDE else self.card.step_ms
        return self._steps.get(mode) or measured

    @property
    def kin(self) -> Kin:
        return self.card.kind, self.card.model, self.card.fingerprint

    @property
    def has_room(self) -> bool:
        return self.requests < self.card.capacity


def worth(card: DrafterCard, host: str, device: str) -> float:
    """The lowest probability of being needed at which a guess is worth a step of the drafter.

    The target is on `device` of `host`.
    """
    return _WORTH_SHARED if (card.host, card.device) == (host, device) else _WORTH_APART


class Drafters:
    """All registered drafters whose vocabulary agrees with the target's, and why the others are refused."""

    def __init__(self, site: Site = NOWHERE) -> None:
        """`site` is the target's."""
        self._site = site
        self._known: dict[str, Drafter] = {}
        self.refused: Mapping[str, str] = {}

    def __getitem__(self, name: str) -> Drafter:
        return self._known[name]

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[Drafter]:
        return iter(self._known.values())

    def update(
        self, cards: Iterable[DrafterCard], refused: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[set[str], set[str]]:
        """Keep the drafters with these cards; returns the ids that joined and those that are gone.

        `refused` are the others that live, with the reasons.
        """
        self.refused = refused
        living = {card.id: card for card in cards}
        joined, gone = living.keys() - self._known.keys(), self._known.keys() - living.keys()
        for name in gone:
            del self._known[name]
        for name, card in living.items():
            if name in self._known:
                self._known[name].card = card
            else:
                self._known[name] = Drafter(card, DrafterCounts(drafter=name, drafted=0, accepted=0, rounds=0, stale=0))
            drafter = self._known[name]
            drafter.contends = card.kind == "model" and neighbours.contend(card.site, self._site)
            drafter.fits = neighbours.fit(card.site, self._site)
            drafter.step_ms = drafter.step_ms or drafter.contends * card.step_ms
        return joined, gone
