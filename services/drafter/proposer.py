"""What a drafter does, whatever it drafts with: sessions open, advance and close; steps give proposals."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from shared import prefix
from shared.messages import Sampling


@dataclass(frozen=True, slots=True)
class Draft:
    """Guesses for one request, hung from the prefix of `base` output tokens with this hash.

    `parents` names for each token the earlier one that it follows, -1 for the prefix; empty: they are a chain.
    Alternatives come likeliest first.
    """

    request_id: str
    base: int
    prefix_hash: int
    tokens: tuple[int, ...]
    scores: tuple[float, ...]
    parents: tuple[int, ...] = ()


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
    worth: float = 0.0  # guesses that the target gets to with less than this probability are not worth drafting


MAX_TOKENS: Final = 200  # of a joined draft; a proposal may carry 256


class _Joint:
    """Drafts of one request that hang together, as one tree."""

    def __init__(self, first: Draft) -> None:
        self._first = first
        self._tokens: list[int] = []
        self._scores: list[float] = []
        self._parents: list[int] = []
        self._places = {first.prefix_hash: -1}  # prefix hash to the index of the token that completes it
        self._hashes: list[int] = []

    def add(self, draft: Draft) -> bool:
        """Take a draft in, unless it hangs from elsewhere or is too long."""
        place = self._places.get(draft.prefix_hash)
        start = len(self._tokens)
        if place is None or start + len(draft.tokens) > MAX_TOKENS:
            return False
        parents = draft.parents or range(-1, len(draft.tokens) - 1)
        for token, score, parent in zip(draft.tokens, draft.scores, parents, strict=True):
            above = place if parent < 0 else start + parent
            found = prefix.extend(self._first.prefix_hash if above < 0 else self._hashes[above], token)
            self._places.setdefault(found, len(self._tokens))
            self._hashes.append(found)
            self._tokens.append(token)
            self._scores.append(score)
            self._parents.append(above)
        return True

    def draft(self) -> Draft:
        chain = self._parents == list(range(-1, len(self._tokens) - 1))
        parents = () if chain else tuple(self._parents)
        return replace(self._first, tokens=tuple(self._tokens), scores=tuple(self._scores), parents=parents)


def join(drafts: Iterable[Draft]) -> list[Draft]:
    """The same guesses with those that continue each other as one tree."""
    joints: list[_Joint] = []
    latest: dict[str, _Joint] = {}  # of each request
    for draft in drafts:
        joint = latest.get(draft.request_id)
        if joint is None or not joint.add(draft):
            joint = latest[draft.request_id] = _Joint(draft)
            joints.append(joint)
            joint.add(draft)
    return [joint.draft() for joint in joints]


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
