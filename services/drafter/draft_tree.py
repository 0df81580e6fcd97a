"""One session's guesses as a tree, and which of them is most worth going on from. Pure.

The drafter's half of the speculation trie: it draws where the target is likeliest to get to, be that the end of the
likeliest path or behind a refusal, so that whatever the verdict is, its continuation has mostly been drafted already.
Idea: pre-drafted outcomes (Saguaro, arXiv 2603.03251), chosen best first as in DDTree (arXiv 2604.12989).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.law import prefix


class DraftCandidate(NamedTuple):
    """A token that may follow: the drafter's confidence, and the probability that the target draws it."""

    token: int
    score: float
    chance: float


@dataclass(slots=True, eq=False)
class DraftNode:
    """A token of the tree. `reach` is the log-probability that the target gets here, from where the session began."""

    token: int
    offset: int  # of this token in the output
    hash: int  # of the whole prefix up to and including it
    parent: "DraftNode | None"
    reach: float = 0.0
    score: float = 1.0
    children: list["DraftNode"] = field(default_factory=list)  # likeliest first
    drawn: bool = False  # its row was computed, so its children are known
    beside: bool = False  # in a step that was taken for a better one


class DraftTree:
    """Guesses after the committed tokens; the root stands for the last of these."""

    def __init__(self, prompt: Sequence[int], committed: Sequence[int], worth: float = 0.0) -> None:
        """Guesses that the target gets to with less than the probability `worth` are not drawn at."""
        start = prefix.extend_all(prefix.extend_all(prefix.EMPTY, prompt), committed)
        self.output = list(committed)
        self.root = DraftNode(token=-1, offset=len(committed) - 1, hash=start, parent=None)
        self._worth = math.log(max(worth, 1e-9))
        self.ahead = 0  # drawn nodes that took a step each: how many guesses were made from here on
        self.beside = 0  # drawn nodes that took none
        self._undrawn = [self.root]

    def worth(self) -> list[DraftNode]:
        """Undrawn nodes that are worth drawing at, the likeliest first."""
        least = self.root.reach + self._worth
        return sorted((node for node in self._undrawn if node.reach >= least), key=lambda node: -node.reach)

    def chance(self, node: DraftNode) -> float:
        """Probability that the target gets to `node` from the root."""
        return math.exp(node.reach - self.root.reach)

    def draw(self, node: DraftNode, candidates: Iterable[DraftCandidate], beside: bool = False) -> None:
        """`candidates` may follow `node`, likeliest first; `beside`: it cost no step of its own."""
        node.drawn, node.beside = True, beside
        self.ahead += not beside
        self.beside += beside
        self._undrawn.remove(node)
        for token, score, chance in candidates:
            child = DraftNode(
                token=token,
                offset=node.offset + 1,
                hash=prefix.extend(node.hash, token),
                parent=node,
                reach=node.reach + math.log(max(chance, 1e-9)),
                score=score,
            )
            node.children.append(child)
            self._undrawn.append(child)

    def commit(self, base: int, tokens: Sequence[int]) -> list[DraftNode] | None:
        """The target decided `tokens` after `base`: move the root along them and forget every other branch.

        Returns the roots that were passed, the present one last; empty if all was known, None on a gap.
        """
        if base > len(self.output):
            return None
        passed: list[DraftNode] = []
        for token in tokens[len(self.output) - base :]:
            child = next((child for child in self.root.children if child.token == token), None)
            if child is None:
                child = DraftNode(
                    token, self.root.offset + 1, prefix.extend(self.root.hash, token), None, self.root.reach
                )
            child.parent = None
            self.root = child
            self.output.append(token)
            passed.append(child)
        if passed:
            self._recount()
        return passed

    def restart(self) -> None:
        """Forget every guess."""
        self.root.children.clear()
        self.root.drawn = False
        self._recount()

    def _recount(self) -> None:
        nodes = [self.root]
        for node in nodes:
            nodes += node.children
        self._undrawn = [node for node in nodes if not node.drawn]
        self.beside = sum(node.drawn and node.beside for node in nodes)
        self.ahead = len(nodes) - len(self._undrawn) - self.beside
