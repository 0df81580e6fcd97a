"""Which prompts one decode reads, and how much: never so much that running requests get tokens at half the speed.

Row costs are measured on short contexts, and a prompt's rows get dearer with every token before them. So the decodes
that read prompts are measured too, and what they take beyond the table is expected of the next. Pure.
"""

from collections.abc import Sequence
from typing import Final

from shared.law.speedup import RowCosts

# A piece may take this long: leases, cancellations and newcomers wait for the end of a decode.
PREFILL_MS: Final = 2000.0
# A decode that others wait for may take this many times what it would without the piece, drafts included. The promise
# is twice, also for the slowest decode of a hundred, and pieces are sized by what decodes take on average.
SHARED_FACTOR: Final = 1.75
_WEIGHT: Final = 0.25  # a prompt gets deeper by little from piece to piece
_DRAFT_WEIGHT: Final = 0.1  # how many drafts a round verifies varies much
_JUMP: Final = 2.0  # one decode says no more than that the truth lies twice as far


class Pieces:
    """Sizes the pieces of one target's prompts."""

    def __init__(self, costs: RowCosts, min_rows: int, max_rows: int, unified: bool = True) -> None:
        """No piece has fewer than `min_rows`, and no decode more than `max_rows`. Not `unified`: in streams."""
        self._costs = costs
        self._min_rows = min_rows
        self._max_rows = max_rows
        self._unified = unified
        self._alone = 1.0  # how many times what the table says a decode takes that only reads prompts
        self._shared = 1.0  # and one that also decodes
        # Rows of a request that decodes, its drafts included: in decodes that read no prompt, and in all of them.
        self._without_piece = 1.0
        self._lately = 1.0
        self._oldest_next = False
        self._first = 0

    def rows(self, requests: int, decoded: int = 0) -> int:
        """Of prompts in a decode in which so many `requests` have `decoded` rows; 0: as many as they had lately.

        At least one, or prompts would starve in their turn.
        """
        if not requests:
            return min(self._max_rows, max(self._min_rows, self._costs.rows_within(PREFILL_MS / self._alone)))
        usual = round(requests * min(self._without_piece, self._lately))
        # In the unified cache a long prompt makes the rows of drafts dearer too: then no less than beside plain steps.
        rows = max(self._beside(usual, decoded or usual), self._beside(requests, requests))
        return min(self._max_rows // 2, max(self._min_rows, rows))

    def _beside(self, usual: int, others: int) -> int:
        """Beside `others` rows, if a decode without a piece has `usual` ones."""
        patience_ms = min(PREFILL_MS, SHARED_FACTOR * self._costs(usual)) / self._shared
        if self._unified:
            return self._costs.rows_within(patience_ms) - others
        rest_ms = patience_ms - self._costs(others + 1)
        return 1 + self._costs.rows_within(rest_ms) if rest_ms >= self._costs(1) else 1

    def order(self, unread: Sequence[int]) -> list[int]:
        """Which prompts come first, given how many rows each still needs, the oldest first.

        The oldest and the shortest take turns at being first, beginning with one that has just come: so a short one is
        read in twice its own time whatever long ones were there before, and no number of short ones takes more than
        half of a long one's.
        """
        order = sorted(range(len(unread)), key=lambda index: unread[index])
        if self._oldest_next and order:
            order.remove(0)
            order.insert(0, 0)
        self._first = order[0] if order else 0
        return order

    def decoded(self, requests: int, rows: int, alone: bool) -> None:
        """So many requests had `rows` rows in a decode, `alone` or beside prompts.

        With drafts a round takes longer, and so may a piece. Beside a piece there is time for more drafts than usual,
        which must not make room for a longer piece yet; but there are fewer once a drafter is gone.
        """
        self._lately += _DRAFT_WEIGHT * (rows / requests - self._lately)
        if alone:
            self._without_piece += _DRAFT_WEIGHT * (rows / requests - self._without_piece)

    def observe(self, others: int, rows: int, ms: float) -> None:
        """A decode of `rows` rows of prompts, in the latest order, and of `others` took `ms`."""
        self._oldest_next = self._first != 0
        ratio = ms / self._expected_ms(others, rows)
        if others:
            self._shared = _towards(self._shared, ratio)
        else:
            self._alone = _towards(self._alone, ratio)

    def _expected_ms(self, others: int, rows: int) -> float:
        """By the table."""
        if self._unified or not others:
            return self._costs(others + rows)
        # llama.cpp computes a row of every sequence first, and the rest of the prompt's piece by itself.
        return self._costs(others + 1) + (self._costs(rows - 1) if rows > 1 else 0.0)


def _towards(known: float, seen: float) -> float:
    bounded = min(max(seen, known / _JUMP), known * _JUMP)
    return max(1.0, known + _WEIGHT * (bounded - known))
