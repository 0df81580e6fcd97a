"""Which tokens each sequence of the KV cache holds, and from which of them a new request can start.

Finished sequences stay resident until their place is needed, least recently used first; a request starts from the
longest common prefix with any of them, busy ones included. With `SavedStates` they leave for host memory instead of
being lost, and come back from there. In the unified cache they leave as soon as another request begins: llama.cpp reads
the cells up to the last used one in every decode, whoever uses them.

A private request neither starts from others' tokens nor lets others start from its own. At least the last prompt token
is always computed again, because its logits are needed. If a sliding window has lost tokens to which a prefix attends,
the prefix is computed again. All methods that touch the target must run in the thread that owns it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from shared.model.leaves import Leaves
from shared.model.prefix_index import common_prefix
from shared.model.saved_states import Match, SavedStates
from shared.model.target import Target

MIN_COPY: Final = 16  # tokens; copying a shorter prefix takes longer than computing it
SPAN_STEP: Final = 256  # cells; llama.cpp rounds the cells that a decode reads up to a multiple of this


@dataclass(slots=True, eq=False)
class Slot:
    """One sequence. `tokens` are in the cache, in order; `used` orders slots by last use. `Sequences` writes it."""

    id: int
    tokens: list[int] = field(default_factory=list)
    busy: bool = False
    used: int = 0
    private: bool = False  # no other request may start from its tokens
    restored: int = 0  # tokens that its request found in host memory


@dataclass(frozen=True, slots=True)
class LeafEnd:
    """How many `rows` of a decode a leaf of a tree has, and how many of them, the first, are `kept`."""

    rows: int
    kept: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a request begins: its slot, how many of its tokens are there, and where they come from."""

    slot: Slot
    shared: int = 0
    source: Slot | Match | None = None  # another slot or host memory; None: the slot itself


class Sequences:
    def __init__(self, target: Target, saved: SavedStates | None = None) -> None:
        """Without `saved` nothing leaves for host memory."""
        self._target = target
        self._saved = saved
        self.span = 0  # about how many cells a decode reads: the most tokens held since the cells were last in order
        self.slots = [Slot(index) for index in range(target.sequences)]
        self._clock = count(1)
        self._spoiled = False
        self._leaves = Leaves(target)

    def spares(self, slot: Slot) -> range:
        """The sequence ids for other continuations of the slot's tokens.

        They are used by `branch` and `join`, or without these by somebody who empties them.
        """
        first = len(self.slots) + slot.id * self._target.branches
        return range(first, first + self._target.branches)

    @property
    def free(self) -> int:
        return sum(not slot.busy for slot in self.slots)

    @property
    def held(self) -> int:
        """Tokens in the cache, those of ended requests included; a copied prefix counts in each place."""
        return sum(len(slot.tokens) for slot in self.slots)

    @property
    def running(self) -> int:
        """Tokens in the cache for requests that run."""
        return sum(len(slot.tokens) for slot in self.slots if slot.busy)

    def acquire(self, tokens: Sequence[int], share: bool) -> Slot:
        """A slot for a request over `tokens`, holding as much of their prefix as is resident. Needs a free slot.

        Without `share` the request is private, and the slot is empty.
        """
        idle = [slot for slot in self.slots if not slot.busy]
        assert idle, "the worker claims no more requests than there are slots"
        if self._spoiled and len(idle) == len(self.slots):
            self._clear()
        place = self._place(tokens[:-1], idle, share)
        slot = place.slot
        if 2 * (place.shared if place.source is None else 0) < len(slot.tokens):
            self._leave(slot)  # most of its tokens would be lost
        self._make_way(slot, place.source)  # first, so that a restored state takes the cells that become free
        shared = self._fetch(place)
        slot.restored = shared if isinstance(place.source, Match) else 0
        self.cut(slot, shared)
        self._make_way(slot)
        slot.busy, slot.private = True, not share
        slot.used = next(self._clock)
        self._order(slot, whole=isinstance(place.source, Match))
        return slot

    def _place(self, tokens: Sequence[int], idle: list[Slot], share: bool) -> _Place:
        """The best match in place if little of it is lost, else a copy of it in the least recently used slot."""
        oldest = min(idle, key=lambda slot: (bool(slot.tokens) and not slot.private, slot.used, slot.id))
        if not share or not self._target.can_roll_back:
            return _Place(oldest)
        lengths = {slot.id: self._usable(slot, tokens) for slot in self.slots if slot.tokens and not slot.private}
        match = self._saved.match(tokens) if self._saved is not None else None
        if match is not None and match.length >= MIN_COPY + max(lengths.values(), default=0):
            return _Place(oldest, match.length, match)
        if not lengths:
            return _Place(oldest)
        best = self.slots[max(lengths, key=lambda index: (lengths[index], not self.slots[index].busy))]
        shared = lengths[best.id]
        if best in idle and (2 * shared >= len(best.tokens) or best is oldest):
            return _Place(best, shared)
        if shared < MIN_COPY or not self._target.can_copy:
            return _Place(oldest, lengths.get(oldest.id, 0))
        return _Place(oldest, shared, best)

    def _usable(self, slot: Slot, tokens: Sequence[int]) -> int:
        """How much of the prefix of `tokens` the slot can provide."""
        shared = common_prefix(slot.tokens, tokens)
        return shared if shared >= self._target.floor(slot.id) else 0

    def _fetch(self, place: _Place) -> int:
        """Bring the tokens into the slot. Returns how many of them are there: all, or none if that cannot be."""
        slot, source = place.slot, place.source
        if source is not None:
            self._leaves.cut(self.spares(slot), 0)  # first, so that their cells are free
        if isinstance(source, Slot):
            return self.copy(source, slot, place.shared)
        if isinstance(source, Match):
            assert self._saved is not None
            slot.tokens = source.prefix.tokens[: self._saved.restore(source, slot.id)].tolist()
            return min(place.shared, len(slot.tokens))
        return place.shared

    def copy(self, source: Slot, slot: Slot, length: int) -> int:
        """Make `slot` hold the first `length` tokens of `source`, and nothing else. Returns how many it holds then."""
        self._leaves.cut(self.spares(slot), 0)
        length = self._target.copy(source.id, slot.id, length)
        slot.tokens = source.tokens[:length]
        self._grown()
        return length

    def _leave(self, slot: Slot) -> bool:
        """Save the slot's tokens if others may start from them. Returns whether the slot may now be emptied."""
        return slot.private or (self._saved is not None and self._saved.save(slot.id, slot.tokens))

    def _make_way(self, slot: Slot, source: Slot | Match | None = None) -> None:
        """Take idle sequences but `slot` and `source` out of the cells that each decode of `slot` will read.

        What cannot be saved stays.
        """
        if self._saved is None or not self._target.unified:
            return
        idle = [other for other in self.slots if not other.busy and other.tokens and other is not slot]
        if sum(len(other.tokens) for other in idle) <= SPAN_STEP:
            return
        for other in sorted(idle, key=lambda other: other.used):
            if other is not source and self._leave(other):
                self.cut(other, 0)

    def _order(self, slot: Slot, whole: bool) -> None:
        """If no other sequence holds tokens, move the slot's to the first cells: free ones before them are read too.

        `whole`: they have just come back together into the first free cells. Beside others the slot keeps the cells
        that it has, and takes the first free ones for what it reads anew.
        """
        if self.held == len(slot.tokens):
            wide = self._target.unified and self.span > self.held + SPAN_STEP and not whole
            if self._saved is not None and slot.tokens and wide:
                self._leaves.cut(self.spares(slot), 0)
                if not self._saved.move(slot.id):
                    slot.tokens.clear()
            self.span = 0
        self._grown()

    def _grown(self) -> None:
        self.span = max(self.span, self.held)

    def cut(self, slot: Slot, length: int) -> None:
        """Keep the slot's first `length` tokens, or fewer where the cache cannot continue from there."""
        if len(slot.tokens) > length or length == 0:
            length = self._target.truncate(slot.id, length)
        del slot.tokens[length:]
        self._leaves.cut(self.spares(slot), len(slot.tokens))

    def keep(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Cut the slot to its common prefix with `tokens`, or to nothing if it cannot continue from there."""
        shared = common_prefix(slot.tokens, tokens)
        if shared < len(slot.tokens):
            self.cut(slot, shared)

    def add(self, slot: Slot, tokens: Sequence[int]) -> None:
        """The cache holds `tokens` after the slot's, or the next decode puts them there."""
        slot.tokens.extend(tokens)
        self._grown()

    def accept(self, slot: Slot, tokens: Sequence[int]) -> None:
        """After a decode: add the accepted `tokens` to the slot, and drop the decode's other tokens."""
        self.add(slot, tokens)
        if self._target.can_roll_back:
            self.rewind(slot)

    def spoil(self, slot: Slot) -> None:
        """The slot gave broken logits, so its keys and values may be broken: no request starts from them.

        Some kernels read forgotten cells and multiply them by 0, which leaves a NaN a NaN. So once no request runs, the
        whole cache is set to zero.
        """
        self.cut(slot, 0)
        self._spoiled = True

    def _clear(self) -> None:
        self._target.clear()
        self._leaves.clear()
        for slot in self.slots:
            slot.tokens.clear()
        self._spoiled, self.span = False, 0

    def rewind(self, slot: Slot) -> None:
        """Drop the cache's tokens after the slot's; empty the slot if it cannot continue from there."""
        del slot.tokens[self._target.truncate(slot.id, len(slot.tokens)) :]
        self._leaves.cut(self.spares(slot), len(slot.tokens))

    def branch(self, slot: Slot, leaves: Iterable[int]) -> None:
        """Before a decode: let those of the slot's spares continue from its tokens."""
        self._leaves.grow(slot.id, leaves, len(slot.tokens))

    def join(self, slot: Slot, ends: Mapping[int, LeafEnd], accepted: int) -> None:
        """After a decode: of its rows in the leaves of `ends`, among them the slot, keep the `accepted` first that the
        target drew, and let the slot have all of these."""
        start = len(slot.tokens)
        own = ends[slot.id].kept
        if own < accepted:
            source = next(leaf for leaf, end in ends.items() if end.kept == accepted)
            self._target.copy(source, slot.id, start + accepted, start + own)
        for leaf, end in ends.items():
            if leaf != slot.id:
                self._leaves.decoded(leaf, start + end.rows)
                self._leaves.cut((leaf,), start + end.kept)

    def release(self, slot: Slot) -> None:
        """The request has ended; its tokens stay in the cache for others, unless it is private."""
        slot.busy = False
        slot.used = next(self._clock)
