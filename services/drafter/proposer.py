"""What a drafter does, whatever it drafts with: sessions open, advance and close; steps give proposals."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from shared.law import prefix
from shared.wire.messages import Sampling


@dataclass(frozen=True, slots=True)
class Draft:
    """Guesses for one request, hung from the prefix of `base` output tokens with this hash.

    `parents` names for each token the earlier one that it follows, -1 for the prefix; empty: they are a chain.
    Alternatives come likeliest first. The last `copied` tokens are copies appended to a model's own guesses.
    """

    request_id: str
    base: int
    prefix_hash: int
    tokens: tuple[int, ...]
    scores: tuple[float, ...]
    parents: tuple[int, ...] = ()
    copied: int = 0


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

    def usable(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens up to the end of an answer, or to the first that the target does not have."""
        for position, token in enumerate(tokens):
            if token >= self.n_vocab:
                return tokens[:position]
            if token in self.eog:
                return tokens[: position + 1]
        return tokens


MAX_TOKENS: Final = 200  # of a joined draft; a proposal may carry 256


class _Guess(NamedTuple):
    token: int
    score: float
    above: int  # hash of the prefix that it follows


class _Joint:
    """Drafts of one request that hang together, as one tree; by the hash of the prefix that each token completes."""

    def __init__(self, first: Draft) -> None:
        self._first = first
        self._own: dict[int, _Guess] = {}
        self._copies: dict[int, _Guess] = {}
        self._take(first)

    def add(self, draft: Draft) -> bool:
        """Take a draft in, unless it hangs from elsewhere or is too long."""
        hangs = draft.prefix_hash == self._first.prefix_hash or draft.prefix_hash in self._own
        if draft.request_id != self._first.request_id or not hangs:
            return False
        if len(self._own) + len(self._copies) + len(draft.tokens) > MAX_TOKENS:
            return False
        self._take(draft)
        return True

    def _take(self, draft: Draft) -> None:
        own = len(draft.tokens) - draft.copied
        hashes = [draft.prefix_hash]  # of what the token with index - 1 completes
        parents = draft.parents or range(-1, len(draft.tokens) - 1)
        for index, (token, score, parent) in enumerate(zip(draft.tokens, draft.scores, parents, strict=True)):
            above = hashes[parent + 1]
            hashes.append(prefix.extend(above, token))
            (self._own if index < own else self._copies)[hashes[-1]] = _Guess(token, score, above)

    def draft(self) -> Draft:
        copies = {found: guess for found, guess in self._copies.items() if found not in self._own}
        guesses = [*self._own.values(), *copies.values()]
        places = {found: index for index, found in enumerate((*self._own, *copies))}
        parents = tuple(places.get(guess.above, -1) for guess in guesses)
        return replace(
            self._first,
            tokens=tuple(guess.token for guess in guesses),
            scores=tuple(guess.score for guess in guesses),
            parents=() if parents == tuple(range(-1, len(guesses) - 1)) else parents,
            copied=len(copies),
        )


def join(drafts: Iterable[Draft]) -> list[Draft]:
    """The same guesses with those that continue each other as one tree."""
    joints: list[_Joint] = []
    for draft in drafts:
        if not any(joint.add(draft) for joint in joints):
            joints.append(_Joint(draft))
    return [joint.draft() for joint in joints]


class Proposer(Protocol):
    """All sessions of one drafter. Calls come from one thread at a time."""

    @property
    def sessions(self) -> int:
        """How many are open."""
        ...

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
