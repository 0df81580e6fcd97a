"""Ranks guesses for rows, best first, and assigns their rows to sequences of the cache. Pure.

The order by path probability gives the most expected accepted tokens for any number of rows. Idea: DDTree (2026, arXiv
2604.12989), here with calibrated acceptance and a number of rows set by measured cost.
"""

import heapq
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, count

from services.verifier.trie import TrieNode


@dataclass(frozen=True, slots=True)
class Ranking:
    """Guesses, best first; each comes after its parent.

    `reach` has for each the probability that the walk reaches and accepts it, in descending order.
    """

    nodes: list[TrieNode]
    reach: list[float]
    tip: TrieNode  # the end of the likeliest path; the root if there is no guess at all
    tip_reach: float
    ended: bool  # the likeliest guess after the tip is an end of generation


def rank(
    root: TrieNode,
    chance: Callable[[TrieNode], float],
    eog: Set[int],
    limit: int,
    leaves: int = 1,
    leaf_price: float = 0.0,
) -> Ranking:
    """The `limit` likeliest guesses below `root` with at most `leaves` leaves; with 1 leaf the likeliest chain.

    `chance` gives the acceptance of a guess if its parent is accepted. A leaf beside the first costs time in which
    other rounds would give `leaf_price` tokens, so no branch is made for a guess that is accepted less often than that.
    A path stops before an end of generation, because the walk would never read a row for it.
    """
    nodes: list[TrieNode] = []
    reach: list[float] = []
    first: dict[TrieNode, TrieNode] = {}  # each chosen parent's likeliest child
    order = count()  # equal guesses keep their order
    heap: list[tuple[float, int, TrieNode, TrieNode]] = []

    def offer(parent: TrieNode, path: float) -> None:
        if not parent.children:
            return
        chances = [chance(child) for child in parent.children.values()]
        # Only one child can be right, so the chances of children together are at most 1.
        share = path / max(1.0, sum(chances))
        for child, own in zip(parent.children.values(), chances, strict=True):
            if child.token not in eog:
                heapq.heappush(heap, (-share * own, next(order), parent, child))

    offer(root, 1.0)
    while heap and len(nodes) < limit:
        negative, _, parent, node = heapq.heappop(heap)
        if first.setdefault(parent, node) is not node:
            if leaves == 1 or -negative < leaf_price:
                continue
            leaves -= 1
        nodes.append(node)
        reach.append(-negative)
        offer(node, -negative)
    tip = root
    while tip in first:
        tip = first[tip]
    ended = not eog.isdisjoint(tip.children) and max(tip.children.values(), key=chance).token in eog
    return Ranking(nodes, reach, tip, reach[nodes.index(tip)] if nodes else 1.0, ended)


def thinned(ranking: Ranking, root: TrieNode, leaves: int) -> Ranking:
    """The same ranking with fewer leaves."""
    parents: set[TrieNode | None] = set()
    chosen: set[TrieNode] = {root}
    nodes, reach = [], []
    for node, chance in zip(ranking.nodes, ranking.reach, strict=True):
        if node.parent not in chosen or (node.parent in parents and leaves == 1):
            continue
        leaves -= node.parent in parents
        parents.add(node.parent)
        chosen.add(node)
        nodes.append(node)
        reach.append(chance)
    return replace(ranking, nodes=nodes, reach=reach)


def leaves(root: TrieNode, nodes: Sequence[TrieNode]) -> int:
    """How many leaves the tree of `root` and `nodes` has."""
    parents = {node.parent for node in nodes}
    return sum(node not in parents for node in nodes) if nodes else 1


def sequences(
    root: TrieNode, nodes: Sequence[TrieNode], ids: Sequence[int], more: int = 0
) -> dict[TrieNode, tuple[int, ...]]:
    """The sequence ids of the rows of `root` and `nodes`: a row belongs to the sequences of all leaves below it.

    The leaves get the `ids` in order, the likeliest leaf first, with `more` ids than one. There must be enough ids.
    """
    children: dict[TrieNode, list[TrieNode]] = {root: []}
    for node in nodes:
        children[node] = []
        assert node.parent is not None, "only the root has no parent"
        children[node.parent].append(node)
    unused = iter(ids[1 + more :])
    first = [tuple(ids[: 1 + more])]
    found: dict[TrieNode, tuple[int, ...]] = {}

    def visit(node: TrieNode) -> tuple[int, ...]:
        below = [visit(child) for child in children[node]]
        own = () if below else first.pop() if first else (next(unused),)
        found[node] = tuple(chain.from_iterable(below)) or own
        return found[node]

    visit(root)
    return found
