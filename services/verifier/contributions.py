"""What each drafter adds to one request: accepted tokens that no other drafter of the request had guessed. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# Rounds with verified drafts before a drafter may be found useless: at one token in twenty rounds two or three are due.
TRIAL_ROUNDS: Final = 48
# Tokens per round below which a drafter adds nothing worth its place: a round gives several.
NOTHING: Final = 0.05
_MEMORY: Final = 1 - 1 / 96  # per round: a drafter becomes useful, or useless, as the text changes


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
    """The drafters of one request since it last gained or lost one: only the same rounds are comparable."""

    def __init__(self) -> None:
        self._of: dict[str, Contribution] = {}

    def heard(self, name: str) -> None:
        """A drafter has spoken; before that it reads the prompt, and its rounds do not count."""
        self._of.setdefault(name, Contribution())

    def restart(self) -> None:
        """The request gained or lost a drafter."""
        self._of.clear()

    def observe(self, guessers: Sequence[Collection[str]]) -> list[str]:
        """A round in which drafts were verified; `guessers` says for each accepted token who had guessed it.

        Returns for each token that one drafter alone had guessed that drafter's name.
        """
        alone = [next(iter(names)) for names in guessers if len(names) == 1]
        for name, contribution in self._of.items():
            contribution.observe(sum(name in names for names in guessers), alone.count(name))
        return alone

    def redundant(self, step_ms: Mapping[str, float]) -> str | None:
        """The drafter to release among those named, each with the time of a step; None if each of them adds something.

        Another one must have been tried too, so that the last is never released. Of two that are redundant beside each
        other the one with fewer accepted tokens goes, and the slower one where that makes no difference.
        """
        tried = {name: self._of[name] for name in step_ms if name in self._of and self._of[name].seen >= TRIAL_ROUNDS}
        useless = [name for name, contribution in tried.items() if contribution.added_per_round < NOTHING]
        if len(tried) < 2 or not useless:
            return None
        fewest = min(tried[name].accepted_per_round for name in useless)
        return min(useless, key=lambda name: (tried[name].accepted_per_round > fewest + NOTHING, -step_ms[name], name))
