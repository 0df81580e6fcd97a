"""Which tokens each sequence of the KV cache holds, and from which of them a new request can start.

Finished sequences stay resident until their place is needed, least recently used first; a request starts from the
longest common prefix with any of them, busy ones included. A private request neither starts from others' tokens nor
lets others start from its own. At least the last prompt token is always computed again,
because its logits are needed. If a sliding window has lost tokens to which a prefix attends, the prefix is computed
again. All methods that touch the target must run in the thread that owns it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import numpy as np

from shared.model.target import Target

MIN_COPY: Final = 16  # tokens; copying a shorter prefix takes longer than computing it


@dataclass(slots=True, eq=False)
class Slot:
    """One sequence. `tokens` are in the cache, in order; `used` orders slots by last use. `Sequences` writes it."""

    id: int
    tokens: list[int] = field(default_factory=list)
    busy: bool = False
    used: int = 0
    private: bool = False  # no other request may start from its tokens


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(np.asarray(one[:length]) != np.asarray(other[:length]))
    return int(different[0]) if different.size else length


class Sequences:
    def __init__(self, target: Target) -> None:
        self._target = target
        self.slots = [Slot(index) for index in range(target.sequences)]
        self._clock = count(1)
        self._spoiled = False

    def spares(self, slot: Slot) -> range:
        """The sequence ids for other continuations of the slot's tokens; their user empties them."""
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
        oldest = min(idle, key=lambda slot: (bool(slot.tokens) and not slot.private, slot.used, slot.id))
        slot, shared = oldest, 0
        if share and self._target.can_roll_back:
            open_slots = [slot for slot in self.slots if slot.tokens and not slot.private]
            lengths = {slot.id: self._usable(slot, tokens[:-1]) for slot in open_slots}
            slot, shared = self._place(idle, oldest, lengths)
        self.cut(slot, shared)
        slot.busy, slot.private = True, not share
        slot.used = next(self._clock)
        return slot

    def _usable(self, slot: Slot, tokens: Sequence[int]) -> int:
        """How much of the prefix of `tokens` the slot can provide."""
        shared = common_prefix(slot.tokens, tokens)
        return shared if shared >= self._target.floor(slot.id) else 0

    def _place(self, idle: list[Slot], oldest: Slot, lengths: dict[int, int]) -> tuple[Slot, int]:
        """The slot to use and its usable prefix: the best match in place if little of it is lost, else a copy of it."""
        if not lengths:
            return oldest, 0
        best = self.slots[max(lengths, key=lambda index: (lengths[index], not self.slots[index].busy))]
        shared = lengths[best.id]
        if best in idle and (2 * shared >= len(best.tokens) or best is oldest):
            return best, shared
        if shared < MIN_COPY or not self._target.can_copy:
            return oldest, lengths.get(oldest.id, 0)
        shared = self._target.copy(best.id, oldest.id, shared)
        oldest.tokens = best.tokens[:shared]
        return oldest, shared

    def cut(self, slot: Slot, length: int) -> None:
        """Keep the slot's first `length` tokens, or fewer where the cache cannot continue from there."""
        if len(slot.tokens) > length or length == 0:
            length = self._target.truncate(slot.id, length)
        del slot.tokens[length:]

    def keep(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Cut the slot to its common prefix with `tokens`, or to nothing if it cannot continue from there."""
        shared = common_prefix(slot.tokens, tokens)
        if shared < len(slot.tokens):
            self.cut(slot, shared)

    def add(self, slot: Slot, tokens: Sequence[int]) -> None:
        """The cache holds `tokens` after the slot's, or the next decode puts them there."""
        slot.tokens.extend(tokens)

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
        for slot in self.slots:
            slot.tokens.clear()
        self._spoiled = False

    def rewind(self, slot: Slot) -> None:
        """Drop the cache's tokens after the slot's; empty the slot if it cannot continue from there."""
        del slot.tokens[self._target.truncate(slot.id, len(slot.tokens)) :]

    def release(self, slot: Slot) -> None:
        """The request has ended; its tokens stay in the cache for others, unless it is private."""
        slot.busy = False
        slot.used = next(self._clock)
