"""What a drafter does, whatever it drafts with: sessions open, advance and close; steps give proposals."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from shared import prefix
from shared.messages import Sampling


@dataclass(frozen=True, slots=True)
class Draft:
    """A chain of guesses for one request, hung from the prefix of `base` output tokens with this hash."""

    request_id: str
    base: int
    prefix_hash: int
    tokens: tuple[int, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """What a session starts from."""

    request_id: str
    prompt: tuple[int, ...]
    committed: tuple[int, ...]
    sampling: Sampling
    eog: frozenset[int]
    n_vocab: int
    lead: int
    model: str = ""  # the target's name: what has another vocabulary has another name


def join(drafts: Iterable[Draft]) -> list[Draft]:
    """The same guesses with chains that continue each other as one."""
    joined: list[Draft] = []
    latest: dict[str, int] = {}  # request to the index of its last chain
    for draft in drafts:
        index = latest.get(draft.request_id)
        if index is not None and joined[index].base + len(joined[index].tokens) == draft.base:
            first = joined[index]
            joined[index] = replace(first, tokens=first.tokens + draft.tokens, scores=first.scores + draft.scores)
        else:
            latest[draft.request_id] = len(joined)
            joined.append(draft)
    return joined


class Proposer(Protocol):
    """All sessions of one drafter. Calls come from one thread at a time."""

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do; a drafter that is not busy sleeps."""
        ...

    @property
    def step_us(self) -> int:
        """What one more token of a running chain takes now; 0 if drafts come all at once."""
        ...

    @property
    def burst(self) -> int:
        """How many steps may pass before their drafts are worth a message: one while a verifier may be waiting."""
        ...

    def open(self, opening: Opening) -> None:
        """Start a session; one that is open under this id is replaced."""
        ...

    def commit(self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0) -> bool:
        """The target decided `tokens` after `base`. False if commits before `base` were missed."""
        ...

    def close(self, request_id: str) -> None:
        """End a session; unknown ids are ignored."""
        ...

    def step(self) -> list[Draft]:
        """One unit of work and the guesses that it gave."""
        ...


class Path:
    """The tokens of one session: prompt, committed output, and guesses beyond it, with every prefix's hash."""

    def __init__(self, prompt: tuple[int, ...], committed: tuple[int, ...]) -> None:
        self.prompt = prompt
        self.output = list(committed)  # committed and guessed
        self.committed = len(committed)
        self._hashes = [prefix.extend_all(prefix.EMPTY, prompt)]
        for token in committed:
            self._hashes.append(prefix.extend(self._hashes[-1], token))

    @property
    def lead(self) -> int:
        """Guesses beyond the committed tokens."""
        return len(self.output) - self.committed

    def hash(self, offset: int) -> int:
        """The hash of the prefix of `offset` output tokens."""
        return self._hashes[offset]

    def guess(self, token: int) -> None:
        """Append a guess."""
        self.output.append(token)
        self._hashes.append(prefix.extend(self._hashes[-1], token))

    def commit(self, base: int, tokens: tuple[int, ...]) -> int | None:
        """The target decided `tokens` after `base`; returns the output length that is still right, None on a gap.

        A commit that repeats what is known changes nothing.
        """
        if base > self.committed:
            return None
        for position, token in enumerate(tokens[self.committed - base :], start=self.committed):
            if position < len(self.output) and self.output[position] == token:
                self.committed += 1
                continue
            self.drop_guesses()
            for decided in tokens[position - base :]:
                self.guess(decided)
            self.committed = len(self.output)
            return position
        return len(self.output)

    def drop_guesses(self) -> None:
        """Forget every guess."""
        del self.output[self.committed :]
        del self._hashes[self.committed + 1 :]
