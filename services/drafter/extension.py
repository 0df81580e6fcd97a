"""Copies behind a model's guesses: where these run into text that is known, its continuation costs no step.

Pure. A model gives one token per step; a copy gives as many as its match is worth, and the model draws them later in
its own time. Idea: continuing a draft by lookup (Cascade Speculative Drafting, Chen et al. 2024, arXiv 2312.11462).
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Final, NamedTuple

from services.drafter.copier import Copier
from services.drafter.draft_tree import DraftNode
from services.drafter.proposer import Opening
from shared.law import prefix

_SURE: Final = 0.7  # of its first token; a shorter match is rarely better than what the model will say by itself
_FAINTEST: Final = 0.1  # probability that the target gets to a token, below which it is not worth telling
_REMEMBERED: Final = 4096  # prefixes; forgetting costs a copy told twice


class Continuation(NamedTuple):
    """Copied tokens with the probability of each, given those before it."""

    tokens: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()


class Extension:
    """The copies of one session, each told once: while the guesses follow it there is nothing new to say."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._copier = Copier((*opening.prompt, *opening.committed))
        self._told: dict[int, int] = {}  # by hash of a prefix, how many tokens were told to follow it

    def commit(self, tokens: Sequence[int]) -> None:
        """The target decided `tokens`."""
        self._copier.commit(tokens)

    def behind(self, node: DraftNode, guesses: Sequence[int], chance: float, room: int) -> Continuation:
        """Up to `room` tokens that are to be told behind `node`, the last of `guesses`; mostly none.

        `chance` is the probability that the target gets to `node`.
        """
        known = self._told.get(node.hash, 0)
        if chance < _FAINTEST or 2 * known >= room or node.token in self._opening.eog:
            return Continuation()
        copies = self._copier.copies(room, guesses)
        if not copies or copies[0].scores[0] < _SURE:
            return Continuation()
        scores = _likely(copies[0].scores, chance)
        tokens = self._opening.usable(copies[0].tokens[: len(scores)])
        hashes = list(accumulate(tokens, prefix.extend, initial=node.hash))
        new = sum(found not in self._told for found in hashes[1:])
        if 2 * new <= known:
            return Continuation()
        if len(self._told) > _REMEMBERED:
            self._told.clear()
        self._told.update({found: len(tokens) - depth for depth, found in enumerate(hashes)})
        return Continuation(tokens, scores[: len(tokens)])


def _likely(scores: tuple[float, ...], chance: float) -> tuple[float, ...]:
    """The scores down to where the path gets too unlikely."""
    reach = accumulate((chance * scores[0], *scores[1:]), mul)
    return tuple(score for score, path in zip(scores, reach, strict=True) if path >= _FAINTEST)
