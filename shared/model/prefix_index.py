"""Which token prefixes a tier of the prefix cache keeps, within a budget of bytes. Pure: it holds no states.

A tier stores one state under each key. The index says which key serves a prompt best, and which keys must go.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Tokens: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Tokens whose state is kept under `key` and takes `size` bytes."""

    key: int
    tokens: Tokens
    size: int


def common_prefix(one: Sequence[int] | Tokens, other: Sequence[int] | Tokens) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    different = np.flatnonzero(np.asarray(one[:length]) != np.asarray(other[:length]))
    return int(different[0]) if different.size else length


class PrefixIndex:
    """At most `budget` bytes. The least recently used prefixes go first, and no prefix is the beginning of another."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = 0
        self._prefixes: dict[int, Prefix] = {}  # the least recently used first
        self._keys = count()

    def __len__(self) -> int:
        return len(self._prefixes)

    def longest(self, tokens: Sequence[int]) -> tuple[Prefix, int] | None:
        """The prefix that has most tokens in common with `tokens`, and how many; the shortest of several such."""
        wanted = np.asarray(tokens, np.int32)
        found = [(common_prefix(one.tokens, wanted), -len(one.tokens), one) for one in self._prefixes.values()]
        shared, _, prefix = max(found, key=lambda one: one[:2], default=(0, 0, None))
        return (prefix, shared) if prefix is not None and shared else None

    def covers(self, tokens: Sequence[int]) -> bool:
        """Whether `tokens` are kept already, alone or as the beginning of more. Then they count as used now."""
        found = self.longest(tokens)
        if found is None or found[1] < len(tokens):
            return False
        self.touch(found[0].key)
        return True

    def touch(self, key: int) -> None:
        """The prefix is used now."""
        self._prefixes[key] = self._prefixes.pop(key)

    def add(self, tokens: Sequence[int], size: int) -> tuple[Prefix, tuple[Prefix, ...], tuple[Prefix, ...]]:
        """Keep `tokens`, which nothing covers and whose `size` is within the budget.

        Returns the new prefix, those that it replaces because it begins with them, and those that go for lack of room.
        """
        new = Prefix(next(self._keys), np.array(tokens, np.int32), size)
        old = self._prefixes.values()
        replaced = tuple(one for one in old if common_prefix(one.tokens, new.tokens) == len(one.tokens))
        for one in replaced:
            self.remove(one.key)
        evicted = []
        while self.size + size > self.budget:
            evicted.append(next(iter(self._prefixes.values())))
            self.remove(evicted[-1].key)
        self._prefixes[new.key] = new
        self.size += size
        return new, replaced, tuple(evicted)

    def remove(self, key: int) -> None:
        self.size -= self._prefixes.pop(key).size
