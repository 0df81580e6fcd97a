"""Measures what each drafter adds to a request: accepted tokens that no other drafter of it had guessed. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# A drafter is judged after this many rounds with verified drafts: one that adds a token in twenty rounds has then added
# two or three.
TRIAL_ROUNDS: Final = 48
# A drafter that adds fewer tokens per round is useless; a round gives several tokens.
NOTHING: Final = 0.05
_MEMORY: Final = 1 - 1 / 96  # per round; old rounds fade, because drafters become useful or useless as the text changes


@dataclass(slots=True)
class Contribution:
    """One drafter's rounds, and the fading sums of rounds and tokens."""

    seen: int = 0
    rounds: float = 0.0
    accepted: float = 0.0
    added: float = 0.0

    def observe(self, accepted: int, added: int) -> None:
        self.seen += 1
        self.rounds = self.rounds * _MEMORY + 1.0
        self.accepted = self.accepted * _MEMORY + accepted
        self.added = self.added * _MEMORY + added

    @property
    def accepted_per_round(self) -> float:
        return self.accepted / self.rounds

    @property
    def added_per_round(self) -> float:
        return self.added / self.rounds


class Contributions:
    """The drafters of one request since it last gained or lost one, so that all are compared on the same rounds."""

    def __init__(self) -> None:
        self._of: dict[str, Contribution] = {}

    def heard(self, name: str) -> None:
        """The drafter has sent a proposal. Rounds before its first one do not count, because it reads the prompt."""
        self._of.setdefault(name, Contribution())

    def restart(self) -> None:
        self._of.clear()

    def observe(self, guessers: Sequence[Collection[str]]) -> list[str]:
        """Count a round that verified drafts; `guessers` has for each accepted token the drafters that guessed it.

        Returns the drafter of each token that only one drafter had guessed.
        """
        alone = [next(iter(names)) for names in guessers if len(names) == 1]
        for name, contribution in self._of.items():
            contribution.observe(sum(name in names for names in guessers), alone.count(name))
        return alone

    def redundant(self, step_ms: Mapping[str, float]) -> str | None:
        """The drafter to release among those in `step_ms` (drafter to time of a step); None if each adds something.

        The last drafter is never released, because two must have had their trial. Of two useless drafters the one with
        fewer accepted tokens goes, or the slower one if these are nearly equal.
        """
        tried = {name: self._of[name] for name in step_ms if name in self._of and self._of[name].seen >= TRIAL_ROUNDS}
        useless = [name for name, contribution in tried.items() if contribution.added_per_round < NOTHING]
        if len(tried) < 2 or not useless:
            return None
        fewest = min(tried[name].accepted_per_round for name in useless)
        return min(useless, key=lambda name: (tried[name].accepted_per_round > fewest + NOTHING, -step_ms[name], name))
