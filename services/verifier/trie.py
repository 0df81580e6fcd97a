"""The speculation trie of one request: every guess about what follows the committed tokens, from whatever drafter.

Pure. The root stands for the committed prefix. A proposal is hung wherever its prefix hash says, even behind the root
if its first tokens turned out true; a commit moves the root and keeps what hangs below the new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shared import prefix


@dataclass(slots=True, eq=False)
class Node:
    """A guessed token. `scores` holds, per drafter, the confidence with which that drafter guessed it."""

    token: int
    offset: int  # of this token in the output
    hash: int  # of the whole prefix up to and including it
    parent: "Node | None"
    children: dict[int, "Node"] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)


class Trie:
    """Guesses after the committed prefix. `max_nodes` bounds what a talkative drafter can make us keep."""

    def __init__(self, prompt: Sequence[int], committed: Sequence[int] = (), max_nodes: int = 512) -> None:
        start = prefix.extend_all(prefix.EMPTY, prompt)
        self._committed: list[int] = []
        self._hashes = [start]  # of the prefix before each output offset
        self.root = Node(token=-1, offset=-1, hash=start, parent=None)
        self._nodes: dict[int, Node] = {}
        self._max_nodes = max_nodes
        self.advance(committed)

    @property
    def offset(self) -> int:
        """Committed output tokens; the offset of the next one."""
        return len(self._committed)

    @property
    def prefix_hash(self) -> int:
        return self._hashes[-1]

    def attach(self, base: int, prefix_hash: int, tokens: Sequence[int], scores: Sequence[float], source: str) -> int:
        """Hang a chain from the prefix that `base` and `prefix_hash` name; returns how many of its tokens are useful.

        Zero means stale: the prefix is unknown, or the chain left the committed path, or it ends behind the root.
        """
        node: Node
        if base <= self.offset:
            if self._hashes[base] != prefix_hash:
                return 0
            behind = self.offset - base
            if list(tokens[:behind]) != self._committed[base : base + len(tokens)]:
                return 0
            tokens, scores, node = tokens[behind:], scores[behind:], self.root
        else:
            found = self._nodes.get(prefix_hash)
            if found is None or found.offset + 1 != base:
                return 0
            node = found
        attached = 0
        for token, score in zip(tokens, scores, strict=True):
            child = node.children.get(token)
            if child is None:
                if len(self._nodes) >= self._max_nodes:
                    break
                child = Node(token=token, offset=node.offset + 1, hash=prefix.extend(node.hash, token), parent=node)
                node.children[token] = child
                self._nodes[child.hash] = child
            child.scores[source] = score
            node = child
            attached += 1
        return attached

    def advance(self, tokens: Sequence[int]) -> None:
        """The target decided `tokens`: move the root along them and drop every other branch."""
        for token in tokens:
            self._committed.append(token)
            self._hashes.append(prefix.extend(self._hashes[-1], token))
            child = self.root.children.pop(token, None)
            for other in self.root.children.values():
                self._forget(other)
            if child is None:
                child = Node(token=token, offset=self.offset - 1, hash=self._hashes[-1], parent=None)
            self._nodes.pop(child.hash, None)
            child.parent = None
            self.root = child

    def _forget(self, node: Node) -> None:
        stack = [node]
        while stack:
            node = stack.pop()
            self._nodes.pop(node.hash, None)
            stack.extend(node.children.values())

    def __len__(self) -> int:
        return len(self._nodes)
