"""Extends a model's guesses by copying known text that continues them, which costs no step. Pure.

A model gives one token per step, a copy many at once; the model draws the same places later. Idea: continuing a draft
by lookup (Cascade Speculative Drafting, Chen et al. 2024, arXiv 2312.11462).
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Final, NamedTuple

from services.drafter.copier import Copier
from services.drafter.draft_tree import DraftNode
from services.drafter.proposer import Opening
from shared.law import prefix

_SURE: Final = 0.7  # lowest probability of a copy's first token; below it the model's own guess is usually better
_FAINTEST: Final = 0.1  # lowest probability that the target reaches a copied token
_REMEMBERED: Final = 4096  # prefixes; after more, some copies are sent twice


class Continuation(NamedTuple):
    """Copied tokens with the probability of each, given those before it."""

    tokens: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()


class Extension:
    """The copies of one session. Each is sent once: nothing is sent again while the guesses follow it."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._copier = Copier((*opening.prompt, *opening.committed))
        self._sent: dict[int, int] = {}  # hash of a prefix to the number of copied tokens sent after it

    def commit(self, tokens: Sequence[int]) -> None:
        """Append `tokens`, which the target decided, to the context."""
        self._copier.commit(tokens)

    def behind(self, node: DraftNode, guesses: Sequence[int], chance: float, room: int) -> Continuation:
        """Up to `room` new tokens to send after `node`, the last of `guesses`; mostly none.

        `chance` is the probability that the target reaches `node`.
        """
        known = self._sent.get(node.hash, 0)
        if chance < _FAINTEST or 2 * known >= room or node.token in self._opening.eog:
            return Continuation()
        copies = self._copier.copies(room, guesses)
        if not copies or copies[0].scores[0] < _SURE:
            return Continuation()
        scores = _likely(copies[0].scores, chance)
        tokens = self._opening.usable(copies[0].tokens[: len(scores)])
        hashes = list(accumulate(tokens, prefix.extend, initial=node.hash))
        new = sum(found not in self._sent for found in hashes[1:])
        if 2 * new <= known:
            return Continuation()
        if len(self._sent) > _REMEMBERED:
            self._sent.clear()
        self._sent.update({found: len(tokens) - depth for depth, found in enumerate(hashes)})
        return Continuation(tokens, scores[: len(tokens)])


def _likely(scores: tuple[float, ...], chance: float) -> tuple[float, ...]:
    reach = accumulate((chance * scores[0], *scores[1:]), mul)
    return tuple(score for score, path in zip(scores, reach, strict=True) if path >= _FAINTEST)
