"""A round: which rows its decode has, which request each belongs to, and what came of it.

`Filling` adds the rows: the next token and the drafts of requests, pieces of prompts, and padding. A padding row
follows all rows of its sequence and is dropped after the decode, so it changes no answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from services.verifier.counters import Counters
from services.verifier.fitting import Fitted, Piece, give_outputs
from services.verifier.generation import Generation
from services.verifier.tree import leaves, sequences
from services.verifier.trie import TrieNode
from services.verifier.walk import Walk
from shared.law.payoff import PREFILL
from shared.model.rows import Rows
from shared.model.sequences import Sequences
from shared.model.target import Target


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


class Filling:
    def __init__(
        self, target: Target, sequences: Sequences, counters: Counters, min_rows: int, most_leaves: int
    ) -> None:
        """No sequence has fewer than `min_rows` rows, and no request's tree more than `most_leaves` leaves."""
        self._target = target
        self._sequences = sequences
        self._counters = counters
        self._min_rows = min_rows
        self._leaves = most_leaves

    def add_decoding(self, round: Round, decoding: Sequence[Generation], fit: Fitted, reasons: Sequence[str]) -> int:
        """Add all decoding requests, and padding up to the shape that the round keeps. Returns the most rows of one.

        `reasons` say why a request has no drafts, if it has none.
        """
        rows, shape, spare = round.rows, fit.shape, fit.spare
        widest = shape.rows // len(decoding) if shape is not None else 1 + max(map(len, fit.widths.drafts))
        for generation, drafts, reason in zip(decoding, fit.widths.drafts, reasons, strict=True):
            more = min(spare, self._leaves - leaves(generation.trie.root, drafts))
            self._add_request(round, generation, drafts, reason, widest, more)
            spare -= more
        if shape is not None:
            round.loss_ms = fit.loss_ms
            slot = min((generation.slot for generation in decoding), key=lambda slot: len(slot.tokens))
            ends = [position for position, ids in zip(rows.positions, rows.sequences, strict=True) if slot.id in ids]
            self._pad(rows, slot.id, 1 + max(ends), shape.rows - len(rows))
            give_outputs(rows, shape.outputs)
        return widest

    def _add_request(
        self, round: Round, generation: Generation, drafts: list[TrieNode], reason: str, widest: int, more: int
    ) -> None:
        """Add a request's next token and drafts, with `more` sequences than leaves."""
        rows, slot, root = round.rows, generation.slot, generation.trie.root
        start = len(slot.tokens)
        entry = RoundEntry(generation, [generation.context[-1]], reason, drafts)
        own = (slot.id,)
        if more or leaves(root, drafts) > 1:
            entry.sequences = sequences(root, drafts, (slot.id, *self._sequences.spares(slot)), more)
        entry.rows[root] = rows.add(generation.context[-1], start, entry.sequences.get(root, own), True)
        for node in drafts:
            position = start + node.offset - root.offset
            entry.rows[node] = rows.add(node.token, position, entry.sequences.get(node, own), True)
        # In streams llama.cpp cuts a batch into pieces of equal width, so a padding row is cheaper than one more piece.
        wanted = self._min_rows if self._target.unified else max(widest, self._min_rows)
        self._pad(rows, slot.id, start + len(entry.rows), wanted - len(entry.rows))
        round.entries.append(entry)

    def add_prompts(self, round: Round, prefilling: Iterable[Generation], piece: Piece, width: int) -> None:
        """Add the first rows of these prompts, in order. Once a prompt ends in this decode, only prompts that end too
        are added, so that its first token does not wait for a part of another prompt."""
        budget, round.loss_ms = piece.rows, piece.loss_ms
        ends = False
        for generation in prefilling:
            if ends and generation.uncomputed > budget:
                break
            size = self._add_prefill(round, generation, budget, width)
            budget -= size
            round.prefill_rows += size
            ends = ends or size == generation.uncomputed
        give_outputs(round.rows, piece.outputs)

    def _add_prefill(self, round: Round, generation: Generation, budget: int, width: int) -> int:
        """Add as much of the prompt as fits; the last token's row gives the first draw. Returns the rows used."""
        size = min(generation.uncomputed, budget, self._target.max_rows - len(round.rows) - self._min_rows)
        if size <= 0:
            return 0
        start = len(generation.slot.tokens)
        tokens = generation.context[start : start + size]
        entry = RoundEntry(generation, tokens, PREFILL)
        ends = size == generation.uncomputed
        round.rows.extend(tokens, start, generation.slot.id, output_last=ends)
        if ends:
            entry.rows[generation.trie.root] = len(round.rows) - 1
        if self._min_rows > 1 and (size < self._min_rows or size - width == 1):
            # llama.cpp computes the rows beyond the common width as a piece, which must not be a single row either.
            self._pad(round.rows, generation.slot.id, start + size, 1)
        round.entries.append(entry)
        return size

    def _pad(self, rows: Rows, slot: int, position: int, count: int) -> None:
        count = min(count, self._target.n_ctx - position, self._target.max_rows - len(rows))
        if count > 0:
            rows.extend([rows.tokens[-1]] * count, position, slot)
            self._counters.add("padding_rows", count)
