"""Which prompts a decode reads, and how much of them: so little that running requests keep half their speed. Pure.

The table of row costs is measured on short contexts, but a prompt's rows cost more the more tokens are before them. So
decodes that read prompts are timed too, and their ratio to the table corrects the prediction for the next.
"""

from collections.abc import Sequence
from typing import Final

from shared.law.speedup import RowCosts

# The longest time of a piece, because leases, cancellations and new requests wait for the end of a decode.
PREFILL_MS: Final = 2000.0
# With a piece, a decode of running requests and their drafts may take this many times as long as without. The promise
# is 2 for all but one decode in a hundred; pieces are sized by the average, so the factor is lower.
SHARED_FACTOR: Final = 1.75
_WEIGHT: Final = 0.25  # weight of a new ratio; ratios change little from piece to piece
_DRAFT_WEIGHT: Final = 0.1  # weight of a new count of rows; these vary much from round to round
_JUMP: Final = 2.0  # one decode changes a ratio as if it was at most this factor away


class Pieces:
    def __init__(self, costs: RowCosts, min_rows: int, max_rows: int, unified: bool = True) -> None:
        """No piece has fewer than `min_rows`, and no decode more than `max_rows`.

        `unified`: the target has one cache for all sequences; otherwise one stream each.
        """
        self._costs = costs
        self._min_rows = min_rows
        self._max_rows = max_rows
        self._unified = unified
        self._alone = 1.0  # measured time over the table's, for decodes that only read prompts
        self._shared = 1.0  # the same for decodes that also serve running requests
        # Average rows per running request, drafts included: in decodes without a piece, and in all decodes.
        self._without_piece = 1.0
        self._lately = 1.0
        self._oldest_next = False  # the next order begins with the oldest prompt
        self._first = 0  # index of the first prompt in the latest order

    def rows(self, requests: int, decoded: int = 0) -> int:
        """The rows for prompts in a decode in which `requests` running requests have `decoded` rows.

        With `decoded` 0 they are taken to have as many as lately. At least 1, so that prompts do not starve.
        """
        if not requests:
            return min(self._max_rows, max(self._min_rows, self._costs.rows_within(PREFILL_MS / self._alone)))
        usual = round(requests * min(self._without_piece, self._lately))
        # In the unified cache a long prompt makes draft rows cost more too, so a piece is at least what fits beside
        # plain steps.
        rows = max(self._beside(usual, decoded or usual), self._beside(requests, requests))
        return min(self._max_rows // 2, max(self._min_rows, rows))

    def _beside(self, usual: int, others: int) -> int:
        """The rows of a piece beside `others` rows, if a decode without a piece has `usual` rows."""
        patience_ms = min(PREFILL_MS, SHARED_FACTOR * self._costs(usual)) / self._shared
        if self._unified:
            return self._costs.rows_within(patience_ms) - others
        rest_ms = patience_ms - self._costs(others + 1)
        return 1 + self._costs.rows_within(rest_ms) if rest_ms >= self._costs(1) else 1

    def order(self, unread: Sequence[int]) -> list[int]:
        """The order in which prompts are read, as indices of `unread`: the rows each still needs, the oldest first.

        The shortest and the oldest take turns at being first, the shortest first. So a short prompt is read in twice
        its own time, whatever long prompts came before it, and short prompts take at most half of a long one's time.
        """
        order = sorted(range(len(unread)), key=lambda index: unread[index])
        if self._oldest_next and order:
            order.remove(0)
            order.insert(0, 0)
        self._first = order[0] if order else 0
        return order

    def decoded(self, requests: int, rows: int, alone: bool) -> None:
        """A decode had `rows` rows of `requests` running requests; `alone`: and no prompts.

        More draft rows allow longer pieces. But beside a piece there is time for more drafts than usual, so these rows
        only ever lower the allowance, as after the loss of a drafter.
        """
        self._lately += _DRAFT_WEIGHT * (rows / requests - self._lately)
        if alone:
            self._without_piece += _DRAFT_WEIGHT * (rows / requests - self._without_piece)

    def observe(self, others: int, rows: int, ms: float) -> None:
        """A decode of `rows` prompt rows in the latest order, and of `others` other rows, took `ms`."""
        self._oldest_next = self._first != 0
        ratio = ms / self._expected_ms(others, rows)
        if others:
            self._shared = _towards(self._shared, ratio)
        else:
            self._alone = _towards(self._alone, ratio)

    def _expected_ms(self, others: int, rows: int) -> float:
        if self._unified or not others:
            return self._costs(others + rows)
        # In streams llama.cpp first computes one row of every sequence, and then the rest of the prompt's piece alone.
        return self._costs(others + 1) + (self._costs(rows - 1) if rows > 1 else 0.0)


def _towards(known: float, seen: float) -> float:
    bounded = min(max(seen, known / _JUMP), known * _JUMP)
    return max(1.0, known + _WEIGHT * (bounded - known))
