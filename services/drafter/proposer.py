"""The interface of all kinds of drafters: sessions open, advance and close, and steps give proposals."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from shared.law import prefix
from shared.wire.messages import Sampling


@dataclass(frozen=True, slots=True)
class Draft:
    """Guesses for one request after its first `base` output tokens, a prefix with hash `prefix_hash`.

    `parents` has the index of the token that each one follows, -1 for the prefix; empty: a chain. Alternatives come
    likeliest first. The last `copied` tokens are copies appended to a model's own guesses.
    """

    request_id: str
    base: int
    prefix_hash: int
    tokens: tuple[int, ...]
    scores: tuple[float, ...]
    parents: tuple[int, ...] = ()
    copied: int = 0
    rests: bool = False  # nothing follows until the next hint


@dataclass(frozen=True, slots=True)
class Opening:
    """A request to draft for."""

    request_id: str
    prompt: tuple[int, ...]
    committed: tuple[int, ...]
    sampling: Sampling
    eog: frozenset[int]
    n_vocab: int
    lead: int
    model: str = ""  # the target's name; targets with different vocabularies have different names
    caller: str = ""  # whose request it is: text is copied only between requests of one caller
    share: bool = True  # False: the request takes nothing from others, and leaves nothing for them
    worth: float = 0.0  # guesses that the target reaches with less than this probability are not worth drafting

    def usable(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens up to an end of generation, or before the first that the target does not have."""
        for position, token in enumerate(tokens):
            if token >= self.n_vocab:
                return tokens[:position]
            if token in self.eog:
                return tokens[: position + 1]
        return tokens


MAX_TOKENS: Final = 200  # most tokens of a joined draft; a proposal may have 256


class _Guess(NamedTuple):
    token: int
    score: float
    above: int  # hash of the prefix that it follows


class _Joint:
    """Drafts of one request as one tree; its tokens by the hash of the prefix that each completes."""

    def __init__(self, first: Draft) -> None:
        self._first = first
        self._own: dict[int, _Guess] = {}
        self._copies: dict[int, _Guess] = {}
        self._take(first)

    def add(self, draft: Draft) -> bool:
        """Add a draft; False if it attaches elsewhere or is too long."""
        attaches = draft.prefix_hash == self._first.prefix_hash or draft.prefix_hash in self._own
        if draft.request_id != self._first.request_id or not attaches:
            return False
        if len(self._own) + len(self._copies) + len(draft.tokens) > MAX_TOKENS:
            return False
        self._take(draft)
        return True

    def _take(self, draft: Draft) -> None:
        own = len(draft.tokens) - draft.copied
        hashes = [draft.prefix_hash]  # at index + 1 the prefix that the token completes
        parents = draft.parents or range(-1, len(draft.tokens) - 1)
        for index, (token, score, parent) in enumerate(zip(draft.tokens, draft.scores, parents, strict=True)):
            above = hashes[parent + 1]
            hashes.append(prefix.extend(above, token))
            (self._own if index < own else self._copies)[hashes[-1]] = _Guess(token, score, above)
        self._rests = draft.rests

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
            rests=self._rests,
        )


def join(drafts: Iterable[Draft]) -> list[Draft]:
    """The same guesses, with drafts that continue each other joined into one."""
    joints: list[_Joint] = []
    for draft in drafts:
        if not any(joint.add(draft) for joint in joints):
            joints.append(_Joint(draft))
    return [joint.draft() for joint in joints]


class Proposer(Protocol):
    """All sessions of one drafter. Calls come from one thread at a time."""

    @property
    def sessions(self) -> int:
        """The number of open sessions."""

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do; otherwise the drafter sleeps."""

    @property
    def step_us(self) -> int:
        """The present time of one more token in microseconds; 0 if drafts come all at once."""

    @property
    def burst(self) -> int:
        """How many steps to take before sending their drafts; 1 while a verifier may be waiting."""

    def open(self, opening: Opening) -> None:
        """Start a session; it replaces one that is open under this id."""

    def commit(
        self, request_id: str, base: int, tokens: tuple[int, ...], lead: int, want: int = 0, worth: float = 0.0
    ) -> bool:
        """The target decided `tokens` after `base`. False if commits before `base` were missed."""

    def close(self, request_id: str) -> None:
        """End a session; ignores unknown ids."""

    def step(self) -> list[Draft]:
        """Do one unit of work; returns its guesses."""


class Path:
    """The tokens of one session: prompt, committed output and guesses after it, with the hash of every prefix."""

    def __init__(self, prompt: tuple[int, ...], committed: tuple[int, ...]) -> None:
        self.prompt = prompt
        self.output = list(committed)  # committed and guessed
        self.committed = len(committed)
        self._hashes = [prefix.extend_all(prefix.EMPTY, prompt)]
        for token in committed:
            self._hashes.append(prefix.extend(self._hashes[-1], token))

    @property
    def lead(self) -> int:
        """The number of guesses after the committed tokens."""
        return len(self.output) - self.committed

    def hash(self, offset: int) -> int:
        return self._hashes[offset]

    def guess(self, token: int) -> None:
        self.output.append(token)
        self._hashes.append(prefix.extend(self._hashes[-1], token))

    def commit(self, base: int, tokens: tuple[int, ...]) -> int | None:
        """The target decided `tokens` after `base`. Returns the length of the output that was right.

        None if commits before `base` are missing. A repeated commit changes nothing.
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
        del self.output[self.committed :]
        del self._hashes[self.committed + 1 :]
