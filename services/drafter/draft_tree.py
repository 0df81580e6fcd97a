"""One session's guesses as a tree, and the order in which to extend it. Pure.

The drafter extends the node that the target most likely reaches, at the end of the likeliest path or after an
alternative. So whatever the target decides, its continuation is mostly drafted already. Idea: pre-drafted outcomes
(Saguaro, arXiv 2603.03251), chosen best first as in DDTree (arXiv 2604.12989).
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
    """A token of the tree. `reach` is the log-probability that the target reaches it from the session's start."""

    token: int
    offset: int  # of this token in the output
    hash: int  # of the whole prefix up to and including it
    parent: "DraftNode | None"
    reach: float = 0.0
    score: float = 1.0
    children: list["DraftNode"] = field(default_factory=list)  # likeliest first
    drawn: bool = False  # its row was computed, so its children are known
    beside: bool = False  # its row shared a step with a better node's


class DraftTree:
    """Guesses after the committed tokens; the root stands for the last committed token."""

    def __init__(self, prompt: Sequence[int], committed: Sequence[int], worth: float = 0.0) -> None:
        """Nodes that the target reaches with a probability below `worth` are not extended."""
        start = prefix.extend_all(prefix.extend_all(prefix.EMPTY, prompt), committed)
        self.output = list(committed)
        self.root = DraftNode(token=-1, offset=len(committed) - 1, hash=start, parent=None)
        self.price(worth)
        self.ahead = 0  # drawn nodes that took a step of their own
        self.beside = 0  # drawn nodes that shared one
        self._undrawn = [self.root]

    def price(self, worth: float) -> None:
        """Extend no nodes from now on that the target reaches with a probability below `worth`."""
        self._worth = math.log(max(worth, 1e-9))

    def worth(self) -> list[DraftNode]:
        """Undrawn nodes that are worth a row, the likeliest first."""
        least = self.root.reach + self._worth
        return sorted((node for node in self._undrawn if node.reach >= least), key=lambda node: -node.reach)

    def chance(self, node: DraftNode) -> float:
        """Probability that the target reaches `node` from the root."""
        return math.exp(node.reach - self.root.reach)

    def draw(self, node: DraftNode, candidates: Iterable[DraftCandidate], beside: bool = False) -> None:
        """Add `candidates` below `node`, likeliest first; `beside`: its row shared another node's step."""
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
        """Move the root along `tokens`, which the target decided after `base`, and drop every other branch.

        Returns the new roots in order, the present one last; empty if nothing is new, None if commits before `base` are
        missing.
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
