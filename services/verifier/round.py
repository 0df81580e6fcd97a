"""A round: which rows the decode has, which request each belongs to, and what came of it."""

from dataclasses import dataclass, field

from services.verifier.generation import Generation
from services.verifier.trie import TrieNode
from services.verifier.walk import Walk
from shared.model.rows import Rows


@dataclass(slots=True)
class RoundEntry:
    """One request's part of a decode. `rows` maps trie nodes to row indices; empty while its prompt is unfinished."""

    generation: Generation
    computed: list[int]  # context tokens that this decode computes, in order
    reason: str  # why it has no drafts in this decode; empty if it has some
    drafts: list[TrieNode] = field(default_factory=list)
    rows: dict[TrieNode, int] = field(default_factory=dict)
    sequences: dict[TrieNode, tuple[int, ...]] = field(default_factory=dict)  # of rows with several; else empty

    @property
    def leaves(self) -> tuple[int, ...]:
        """The sequences of a tree; none for a chain that has only the request's own."""
        return self.sequences[self.generation.trie.root] if self.sequences else ()

    @property
    def spares(self) -> tuple[int, ...]:
        """The leaves but the request's own sequence."""
        return tuple(leaf for leaf in self.leaves if leaf != self.generation.slot.id)


@dataclass(slots=True)
class Round:
    """A decode to run, or only a wait when `rows` is empty."""

    rows: Rows
    entries: list[RoundEntry]
    wait_ms: float = 0.0
    drafting: bool = False  # a drafter computes meanwhile on the target's cores
    decoding: int = 0  # requests that get tokens
    prefill_rows: int = 0
    loss_ms: float = 0.0  # what keeping the last decode's shape loses, as in `Shapes.keeps`


@dataclass(frozen=True, slots=True)
class Decoded:
    """A round that the target's thread has decoded and walked."""

    round: Round
    decode_ms: float
    reused: bool  # llama.cpp had kept the graph of the decode before
    walks: tuple[Walk | None, ...]  # by entry; None for one whose prompt is unfinished
