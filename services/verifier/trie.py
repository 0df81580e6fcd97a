"""The speculation trie of one request: the guesses of all drafters about what follows the committed tokens. Pure.

The root stands for the committed prefix. The prefix hash of a proposal says where it attaches. A proposal for an
earlier prefix is still useful if its first tokens were right. A commit moves the root and keeps the guesses below it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from shared.law import prefix
from shared.law.acceptance import COPIED


class Guess(NamedTuple):
    """One drafter's guess: its confidence, and the number of tokens that it ranked higher at that place.

    The rank of a copied token is `COPIED`.
    """

    score: float
    rank: int = 0


class Admissibility(Enum):
    """Whether a token can be right at a place: never, like others, or as the only one."""

    FORBIDDEN = auto()
    FREE = auto()
    FORCED = auto()


@dataclass(slots=True, eq=False)
class TrieNode:
    """A token after a prefix, with the guess of each drafter that proposed it.

    It is `forced` if the request's constraint leaves no other choice.
    """

    token: int
    offset: int  # of this token in the output
    hash: int  # of the whole prefix up to and including it
    parent: "TrieNode | None"
    children: dict[int, "TrieNode"] = field(default_factory=dict)
    guesses: dict[str, Guess] = field(default_factory=dict)
    forced: bool = False


class Trie:
    """Guesses after the committed prefix, at most `max_nodes`, because drafters may send any number.

    `rule` says whether a token can be right after a node; a token that cannot never enters the trie.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        committed: Sequence[int] = (),
        max_nodes: int = 512,
        rule: Callable[[TrieNode, int], Admissibility] = lambda node, token: Admissibility.FREE,
    ) -> None:
        start = prefix.extend_all(prefix.EMPTY, prompt)
        self._committed: list[int] = []
        self._hashes = [start]  # of the prefix before each output offset
        self.root = TrieNode(token=-1, offset=-1, hash=start, parent=None)
        self._nodes: dict[int, TrieNode] = {}
        self._max_nodes = max_nodes
        self._rule = rule
        self.advance(committed)

    @property
    def offset(self) -> int:
        """Committed output tokens; the offset of the next one."""
        return len(self._committed)

    def attach(
        self,
        base: int,
        prefix_hash: int,
        tokens: Sequence[int],
        scores: Sequence[float],
        source: str,
        parents: Sequence[int] = (),
        copied: int = 0,
    ) -> int | None:
        """Attach a tree to the prefix that `base` and `prefix_hash` name; returns the number of its useful tokens.

        `parents` has the index of the token that each one follows, -1 for the prefix; empty: a chain. Returns 0 if the
        tokens were right but are already committed. Returns None if the proposal is stale: the prefix is unknown, or
        every path left the committed tokens. The last `copied` tokens are copies, which never replace a guess of the
        drafter itself.
        """
        start = self._place(base, prefix_hash)
        if start is None:
            return None
        # The place of each token: its node, or the number of committed tokens that it repeats, or None if it is wrong.
        places: list[TrieNode | int | None] = []
        ranks: dict[int, int] = {}
        attached = 0
        for index, (token, score) in enumerate(zip(tokens, scores, strict=True)):
            parent = parents[index] if parents else index - 1
            own = index < len(tokens) - copied
            if own:
                ranks[parent] = ranks.get(parent, -1) + 1
            place = start if parent < 0 else places[parent]
            if isinstance(place, int) and place < self.offset:
                places.append(place + 1 if self._committed[place] == token else None)
                continue
            node = self.root if isinstance(place, int) else place
            child = self._guessed(node, token) if node is not None else None
            if child is not None:
                if own:
                    child.guesses[source] = Guess(score, ranks[parent])
                else:
                    child.guesses.setdefault(source, Guess(score, COPIED))
                attached += 1
            places.append(child)
        if attached:
            return attached
        followed = set(parents or range(-1, len(tokens) - 1))
        late = any(isinstance(place, int) and index not in followed for index, place in enumerate(places))
        return 0 if late else None

    def _place(self, base: int, prefix_hash: int) -> TrieNode | int | None:
        if base <= self.offset:
            return base if self._hashes[base] == prefix_hash else None
        found = self._nodes.get(prefix_hash)
        return found if found is not None and found.offset + 1 == base else None

    def force(self, node: TrieNode, tokens: Sequence[int]) -> bool:
        """Add `tokens`, which must follow `node`; returns whether any of them is new."""
        size = len(self._nodes)
        for token in tokens:
            child = self._child(node, token, forced=True)
            if child is None:
                break
            node = child
        return len(self._nodes) > size

    def _guessed(self, node: TrieNode, token: int) -> TrieNode | None:
        if token in node.children:
            return node.children[token]
        verdict = self._rule(node, token)
        if verdict is Admissibility.FORBIDDEN:
            return None
        return self._child(node, token, verdict is Admissibility.FORCED)

    def _child(self, node: TrieNode, token: int, forced: bool) -> TrieNode | None:
        """The child of `node` for `token`, made if there is room for it."""
        child = node.children.get(token)
        if child is None and len(self._nodes) < self._max_nodes:
            child = TrieNode(
                token=token,
                offset=node.offset + 1,
                hash=prefix.extend(node.hash, token),
                parent=node,
                forced=forced,
            )
            node.children[token] = child
            self._nodes[child.hash] = child
        return child

    def advance(self, tokens: Sequence[int]) -> None:
        """Move the root along `tokens`, which the target decided, and drop every other branch."""
        for token in tokens:
            self._committed.append(token)
            self._hashes.append(prefix.extend(self._hashes[-1], token))
            child = self.root.children.pop(token, None)
            for other in self.root.children.values():
                self._forget(other)
            if child is None:
                child = TrieNode(token=token, offset=self.offset - 1, hash=self._hashes[-1], parent=None)
            self._nodes.pop(child.hash, None)
            child.parent = None
            self.root = child

    def _forget(self, node: TrieNode) -> None:
        stack = [node]
        while stack:
            node = stack.pop()
            self._nodes.pop(node.hash, None)
            stack.extend(node.children.values())

    def __len__(self) -> int:
        return len(self._nodes)
