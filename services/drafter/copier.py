"""Continues a context by copying what followed its last tokens elsewhere, and resumes a copy after an edit. Pure.

The *cursor* follows the place that is being copied. If the context leaves the copy (tokens are replaced, inserted or
deleted), the cursor stays, and the first tokens after the edit are searched near it: a place that continues the same
copy after one or two tokens is better than a distant one with a longer, accidental match. It competes with every other
place where the last tokens occurred before, by the probability of the next token. The constants are fitted to the
workloads of `python -m bench.copying`, whose results change little with any of them.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.drafter.suffix import LONGEST, SuffixIndex
from services.drafter.votes import CopiedChain, Hypothesis, Voter, chains, first, grouped

_CONTEXT: Final = 1 << 16  # the last tokens of a context that are searched; takes 3 MB
_VOTERS: Final = 8  # places in one index that vote on the next token
_LEAST: Final = 2  # the shortest match in the context itself
_LEAST_OTHERS: Final = 3  # the shortest match in other requests' text, where shorter ones are mostly accidents
_AHEAD: Final = 80  # the longest deletion after which a copy is resumed, about eight lines of code
_BEHIND: Final = 16  # tokens before the cursor to search, because the end of an edit may agree with the copy by chance
_PATIENCE: Final = 64  # the longest insertion, in tokens, after which a copy is resumed
_TRUSTED: Final = 6  # tokens that a copy must have agreed on to be resumed after an edit
_SURE: Final = 8  # after this many agreeing tokens in a row the cursor forgets the place before
_CREDIT: Final = 0.5  # what a token that agreed before the edit counts, relative to one after it
_MOST_CREDIT: Final = 32.0
_SUBSTITUTED: Final = 0.2  # the probability that a copy continues after a single replaced token


@dataclass(slots=True)
class _Cursor:
    """A copy in progress: the next token is at position `at` of `source`.

    If this copy proves wrong before it is sure, the cursor returns to `back`.
    """

    source: SuffixIndex
    at: int
    run: int  # tokens in a row that agreed
    credit: float = 0.0  # credit for the run before the last edit, in tokens
    lost: int = 0  # tokens since the copy last agreed
    back: "_Cursor | None" = None
    age: int = 0  # tokens since the cursor left `back`

    def advance(self, token: int) -> None:
        self.age += 1
        if not self.lost and self.source.token(self.at) == token:
            self.at += 1
            self.run += 1
            if self.run >= _SURE:
                self.back = None
        elif self.back is not None:
            back, lost = self.back, self.back.lost + self.age
            self.source, self.at, self.run, self.credit, self.lost = back.source, back.at, back.run, back.credit, lost
            self.back = None
        else:
            self.lost += 1

    def near(self, source: SuffixIndex, at: int) -> bool:
        """Whether the copy may continue at this place."""
        return source is self.source and -_BEHIND <= at - self.at <= _AHEAD

    @property
    def match(self) -> float:
        """The evidence for this place in tokens. Credit from before the edit counts only with agreement after it."""
        return self.run + min(self.credit, 2.0 * self.run)

    @property
    def usable(self) -> bool:
        """Whether the copy may be resumed."""
        return self.lost <= _PATIENCE and (self.run >= _TRUSTED or self.credit > 0.0)

    @property
    def worth(self) -> float:
        """The credit of a place near this one."""
        return max(self.credit, min(_MOST_CREDIT, _CREDIT * self.run))


class Copier:
    """Finds copies for one context, in it and in `others`, an index of other requests' text that the caller extends."""

    def __init__(self, context: Sequence[int], others: SuffixIndex | None = None) -> None:
        self.index = SuffixIndex(_CONTEXT)
        self.index.extend(context)
        self._others = others
        self._cursor: _Cursor | None = None
        self._next: _Cursor | None = None  # the cursor that follows the likeliest copy; None before `copies`

    def commit(self, tokens: Sequence[int]) -> None:
        self.index.extend(tokens)
        if self._next is not None:
            self._cursor, self._next = self._next, None
        if self._cursor is not None:
            for token in tokens:
                self._cursor.advance(token)

    def copies(self, most: int, guesses: Sequence[int] = ()) -> list[CopiedChain]:
        """The likeliest chain of up to `most` tokens after the context and `guesses`, then alternatives.

        The guesses are matched as if they were part of the context, but do not change it.
        """
        cursor = self._cursor
        if guesses:
            if self._next is None:
                self.copies(1)
            cursor = self._next or self._cursor
            if cursor is not None:
                cursor = replace(cursor)
                for token in guesses:
                    cursor.advance(token)
        tail = [*self.index.tokens[-LONGEST:], *guesses][-LONGEST:]
        found = self._resumed(cursor, tail, most, guesses)
        for source, least in ((self.index, _LEAST), (self._others, _LEAST_OTHERS)):
            if source is not None:
                found += self._elsewhere(source, least, tail, most, guesses)
        found.sort(key=lambda hypothesis: -hypothesis.chance)
        if not found:
            return []
        if not guesses:
            self._next = self._followed(found[0].voters[0])
        said = found[0].voters[0].tokens[0]
        return chains(found[0], next((other for other in found if other.voters[0].tokens[0] != said), None))

    def _resumed(self, cursor: _Cursor | None, tail: list[int], most: int, guesses: Sequence[int]) -> list[Hypothesis]:
        """The cursor's place, or the place where its copy may continue after an edit."""
        if cursor is None:
            return []
        if not cursor.lost:
            return self._place(
                1.0 - min(0.5, 2.0 / (cursor.match + 1.0)), cursor, cursor.at, cursor.run, cursor.match, most, guesses
            )
        if not cursor.usable:
            return []
        near = self._near(cursor, tail)
        if near is not None:
            likelihood, at, length = near
            return self._place(likelihood, cursor, at, length, length + 2.0, most, guesses)
        if cursor.lost == 1:
            return self._place(_SUBSTITUTED, cursor, cursor.at + 1, 0, 4.0, most, guesses)
        return []

    def _near(self, cursor: _Cursor, tail: list[int]) -> tuple[float, int, int] | None:
        """The likeliest place near the cursor after the last token: its probability, position and match length."""
        source = cursor.source
        tokens, dropped = source.tokens, source.dropped
        place = max(0, cursor.at - _BEHIND - dropped)
        last = min(len(tokens) - 1, cursor.at + _AHEAD - dropped)
        best: tuple[float, int, int] | None = None
        while True:
            try:
                place = tokens.index(tail[-1], place, last) + 1
            except ValueError:
                return best
            length = source.match(tail, place + dropped)
            rating = length - 0.3 * math.log2(1 + abs(place + dropped - cursor.at - 1))
            likelihood = 1.0 / (1.0 + math.exp(1.4 * (0.8 - rating)))
            if best is None or likelihood > best[0]:
                best = likelihood, place + dropped, length

    def _elsewhere(
        self, source: SuffixIndex, least: int, tail: list[int], most: int, guesses: Sequence[int]
    ) -> list[Hypothesis]:
        """The places in `source` where the last tokens occurred, grouped by what follows there."""
        voters = [
            Voter(source, place.end, place.length, place.length, self._following(source, place.end, most, guesses))
            for place in source.find(tail, _VOTERS)
            if place.length >= least
        ]
        groups = grouped(voters, 0)
        return [Hypothesis(first(group, len(voters), source is not self.index), group) for group in groups]

    def _place(
        self, likelihood: float, cursor: _Cursor, at: int, run: int, match: float, most: int, guesses: Sequence[int]
    ) -> list[Hypothesis]:
        tokens = self._following(cursor.source, at, most, guesses)
        return [Hypothesis(likelihood, [Voter(cursor.source, at, run, match, tokens)])] if tokens else []

    def _following(self, source: SuffixIndex, at: int, most: int, guesses: Sequence[int]) -> "array[int]":
        """Up to `most` tokens to copy from `at`; a copy that reaches the end of the context repeats itself."""
        tokens = source.following(at, most)
        if source is self.index and len(tokens) < most:
            tokens.extend(guesses)
            period = self.index.end + len(guesses) - at
            while 0 < period <= len(tokens) < most:
                tokens.append(tokens[-period])
            del tokens[most:]
        return tokens

    def _followed(self, voter: Voter) -> _Cursor:
        """The cursor for a copy from `voter`; it returns to the present one if that soon proves wrong."""
        old = self._cursor
        new = _Cursor(voter.source, voter.at, voter.run)
        if old is None:
            return new
        if not old.lost and old.source is new.source and old.at == new.at:
            return replace(old)
        if old.lost and old.near(new.source, new.at):
            new.credit = old.worth
        if new.run < _SURE:
            if old.back is not None:
                new.back, new.age = old.back, old.age
            elif old.usable:
                new.back = old
        return new
