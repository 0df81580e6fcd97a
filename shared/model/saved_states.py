"""The prefix cache's tier in host memory: states of sequences that have left the target's own cache.

A state is saved once: tokens that are kept already cost no copy. It stays here after it was restored, so a conversation
that leaves the cache again without a new token costs nothing either. All methods run in the target's thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from shared.model.prefix_index import Prefix, PrefixIndex
from shared.model.target import State, States

MIN_SHARE: Final = 1 / 16  # of a state's tokens; to restore more than 16 for each that is used takes as long as reading


@dataclass(frozen=True, slots=True)
class Match:
    """The first `length` tokens of a saved state serve a prompt."""

    prefix: Prefix
    length: int


class SavedStates:
    def __init__(self, states: States, budget: int, count: Callable[[str, int], None]) -> None:
        """At most `budget` bytes of what `states` gives. `count` is told `saved_bytes` and `evicted_states`."""
        self._states = states
        self._index = PrefixIndex(budget)
        self._kept: dict[int, State] = {}
        self._count = count

    @property
    def size(self) -> int:
        """Bytes of all states."""
        return self._index.size

    def save(self, sequence: int, tokens: Sequence[int]) -> bool:
        """Keep the state of a sequence that holds `tokens`. False if it takes more than the whole budget, or if the
        target cannot give it now."""
        if self._index.covers(tokens):
            return True
        if self._states.size(sequence) > self._index.budget:
            return False
        state = self._states.save(sequence)
        if state is None:
            return False
        new, replaced, evicted = self._index.add(tokens, len(state))
        for old in (*replaced, *evicted):
            del self._kept[old.key]
        self._kept[new.key] = state
        self._count("saved_bytes", len(state))
        self._count("evicted_states", len(evicted))
        return True

    def match(self, tokens: Sequence[int]) -> Match | None:
        """The state that has most tokens in common with `tokens`, if to restore it is cheaper than to read them."""
        found = self._index.longest(tokens)
        if found is None or found[1] < MIN_SHARE * len(found[0].tokens):
            return None
        self._index.touch(found[0].key)
        return Match(*found)

    def restore(self, match: Match, sequence: int) -> int:
        """Make the sequence hold all tokens of the matched prefix. Returns how many it holds: all, or 0 if the target
        cannot take them now."""
        prefix = match.prefix
        if prefix.key not in self._kept:  # it made way for what was saved since
            return 0
        return len(prefix.tokens) if self._states.restore(sequence, self._kept[prefix.key]) else 0

    def move(self, sequence: int) -> bool:
        """Put the sequence's tokens into the first free cells once it has none. False if it lost them on the way."""
        state = self._states.save(sequence)
        return state is None or self._states.restore(sequence, state)
