"""Finds where the last tokens of a context occurred before: long matches, the latest first. Pure.

Places are chained by hashes of their last 2, 4, 8 and 16 tokens. A search compares the tokens, so collisions cost time
but never give a wrong match. The longest match is missed if more than `LOOKS` later places share its last 2, 4, 8 or 16
tokens; a suffix automaton (Blumer et al. 1985) would never miss it, for about ten times the memory. Chaining as in
deflate (RFC 1951, section 4).
"""

from array import array
from collections import deque
from collections.abc import Sequence
from operator import mul
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

LENGTHS: Final = (2, 4, 8, 16)  # each twice the one before, so that two hashes of half the length make the hash
LONGEST: Final = 64  # longest match that is measured; longer ones are no likelier to be right
LOOKS: Final = 16  # most places compared per length; more find little and cost time on repetitive text

_MASK: Final = (1 << 32) - 1
_BASE: Final = 0x9E3779B1  # odd, near 2^32 divided by the golden ratio
_SPREAD: Final = 0x85EBCA6B  # odd; mixes every bit of a hash into the upper bits, which choose the chain
_POWERS: Final = tuple(pow(_BASE, exponent, 1 << 32) for exponent in range(LENGTHS[-1]))
_FEWEST_BITS: Final = 8
_MANY: Final = 64  # from this many tokens on numpy is faster than a loop

Codes = npt.NDArray[np.uint32]


class Occurrence(NamedTuple):
    """`end` is the position of the token that followed; the `length` tokens before it are the same."""

    end: int
    length: int


class _Chains:
    """For one length: the latest place of each hash, and for each place the one before it with the same hash.

    A place is the end of a match, counted from 1 within the kept tokens; 0 means none.
    """

    def __init__(self, length: int, bits: int) -> None:
        self.length = length
        self.factor = _POWERS[length // 2]
        self.ones = sum(_POWERS[:length])  # a token's code is one more than its id
        # Hashes of half the length at the latest places. Zeros stand before the first token; no token's code is 0.
        self.halves = deque([0] * (length // 2), maxlen=length // 2)
        self.latest = array("i", bytes(4 << bits))
        self.previous = array("i")

    def append(self, halves: Codes, bits: int) -> Codes:
        """Chain more places by their hashes of half the length; returns their hashes of this length."""
        half = self.length // 2
        earlier = np.concatenate((np.array(self.halves, np.uint32), halves))
        self.halves.extend(earlier[-half:].tolist())
        codes = earlier[:-half] * np.uint32(self.factor) + halves
        slots = (codes * np.uint32(_SPREAD)) >> np.uint32(32 - bits)
        order = np.argsort(slots, kind="stable").astype(np.int32)
        ordered, places = slots[order], order + np.int32(len(self.previous) + 1)
        first = np.append(True, ordered[1:] != ordered[:-1])  # of its hash among the new places
        latest = np.frombuffer(self.latest, np.int32)
        previous = np.empty(len(order), np.int32)
        previous[order] = np.where(first, latest[ordered], np.roll(places, 1))
        last = np.roll(first, -1)
        latest[ordered[last]] = places[last]
        self.previous.frombytes(previous.tobytes())
        return codes


class SuffixIndex:
    """A growing list of tokens. When it reaches `limit` tokens (0: no limit), the older part is dropped.

    Positions count all tokens ever appended, dropped ones included. Appending takes amortised constant time per token;
    `find` compares at most `LOOKS` places per length.
    """

    def __init__(self, limit: int = 0) -> None:
        self.tokens = array("i")
        self.dropped = 0  # number of dropped tokens; the position of `tokens[0]`
        self._limit = limit
        self._bits = _FEWEST_BITS
        self._chains = tuple(_Chains(length, self._bits) for length in LENGTHS)

    @property
    def end(self) -> int:
        """The position of the next token."""
        return self.dropped + len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        if not tokens:
            return
        size = len(self.tokens) + len(tokens)
        if size > self._limit > 0 or size > 1 << self._bits:
            self._rebuild(tokens)
        elif len(tokens) < _MANY:
            self._append(tokens)
        else:
            self._append_many(array("i", tokens))

    def following(self, position: int, count: int) -> "array[int]":
        """Up to `count` tokens from `position` on; none if it is dropped or not there yet."""
        start = position - self.dropped
        return self.tokens[start : start + count] if start >= 0 else array("i")

    def find(self, suffix: Sequence[int], most: int) -> list[Occurrence]:
        """Up to `most` places where a token followed the last tokens of `suffix`, the latest first.

        All match over the same minimal length: the longest of `LENGTHS` for which there is a place.
        """
        last = suffix[: -LENGTHS[-1] - 1 : -1]
        for chains in reversed(self._chains):
            if chains.length <= len(last):
                code = sum(map(mul, last[: chains.length], _POWERS), chains.ones) & _MASK
                found = self._walk(chains, code, suffix, most)
                if found:
                    return found
        return []

    def token(self, position: int) -> int:
        """The token at `position`; -1 if it is dropped or not there yet."""
        place = position - self.dropped
        return self.tokens[place] if 0 <= place < len(self.tokens) else -1

    def match(self, suffix: Sequence[int], position: int) -> int:
        """How many of the last tokens of `suffix` equal those before `position`, at most `LONGEST`."""
        place = position - self.dropped
        tokens = self.tokens
        longest = min(len(suffix), place, LONGEST)
        length = 0
        while length < longest and suffix[-1 - length] == tokens[place - 1 - length]:
            length += 1
        return length

    def _walk(self, chains: _Chains, code: int, suffix: Sequence[int], most: int) -> list[Occurrence]:
        found: list[Occurrence] = []
        place = chains.latest[(code * _SPREAD & _MASK) >> (32 - self._bits)]
        for _ in range(LOOKS):
            if not place or len(found) == most:
                break
            if place < len(self.tokens):  # at the end no token follows
                length = self.match(suffix, place + self.dropped)
                if length >= chains.length:
                    found.append(Occurrence(place + self.dropped, length))
            place = chains.previous[place - 1]
        return found

    def _append(self, tokens: Sequence[int]) -> None:
        shift = 32 - self._bits
        place = len(self.tokens)
        tables = [(chains.halves, chains.factor, chains.latest, chains.previous) for chains in self._chains]
        for token in tokens:
            place += 1
            code = token + 1
            for halves, factor, latest, previous in tables:
                earlier = halves[0]
                halves.append(code)
                code = earlier * factor + code & _MASK
                slot = (code * _SPREAD & _MASK) >> shift
                previous.append(latest[slot])
                latest[slot] = place
        self.tokens.extend(tokens)

    def _append_many(self, tokens: "array[int]") -> None:
        codes = np.array(tokens, np.uint32) + np.uint32(1)
        for chains in self._chains:
            codes = chains.append(codes, self._bits)
        self.tokens.extend(tokens)

    def _rebuild(self, tokens: Sequence[int]) -> None:
        """Append tokens that exceed the tables or the limit: drop the older part if needed, and chain all again."""
        kept = self.tokens
        kept.extend(tokens)
        if len(kept) > self._limit > 0:
            gone = len(kept) - max(self._limit // 2, 1)
            del kept[:gone]
            self.dropped += gone
        self.tokens = array("i")
        self._bits = max(_FEWEST_BITS, len(kept).bit_length())
        self._chains = tuple(_Chains(length, self._bits) for length in LENGTHS)
        self._append_many(kept)
