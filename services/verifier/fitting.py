"""Fits a decode to the shape of the one before: fewer or more drafts, rows that nobody reads, sequences to spare. Pure.

A decode cannot have fewer rows, logits or sequences than its requests need, but it can have more: rows that follow a
request's own, logits of rows that have none, and several sequences for the same rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.verifier.shapes import Shapes
from services.verifier.trie import TrieNode
from shared.model.rows import DecodeShape, Rows
from shared.model.sequences import SPAN_STEP

_LEAVES: Final = (1, 2, 4, 8)  # of a request's tree on average, in a decode with its own shape
_SMALL: Final = 0.25  # of what a graph costs: so much may sequences cost that only later decodes need


@dataclass(frozen=True, slots=True)
class Widths:
    """The drafts of each decoding request, and what comes of them."""

    drafts: list[list[TrieNode]]
    rows: int  # of all requests, those included that pad streams to equal widths
    leaves: int  # of all trees
    tokens: float  # expected

    @property
    def outputs(self) -> int:
        return len(self.drafts) + sum(map(len, self.drafts))


@dataclass(frozen=True, slots=True)
class Fitted:
    """How a decode gets its shape. `loss_ms` is as in `Shapes.keeps`."""

    widths: Widths
    spare: int = 0  # sequences beside those of the leaves
    shape: DecodeShape | None = None  # the one that it keeps; None: its own
    loss_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """How much of a prompt a decode reads, and of how many rows in all it gives the logits: 0 where it needs no more.

    `loss_ms` is as in `Shapes.keeps`.
    """

    rows: int
    outputs: int = 0
    loss_ms: float = 0.0


class Fitting:
    def __init__(self, shapes: Shapes, most_leaves: int) -> None:
        """A request's tree has at most `most_leaves` leaves."""
        self._shapes = shapes
        self._most_leaves = most_leaves

    def steps(self, requests: int, equal_widths: bool) -> int:
        """How many drafts fit into the last shape: of all requests, or with equal widths of each."""
        shape = self._shapes.last
        if shape is None:
            return 0
        return shape.rows // requests - 1 if equal_widths else min(shape.rows, shape.outputs) - requests

    @property
    def leaves(self) -> int:
        """How many leaves all trees may have in the last shape."""
        return self._shapes.last.sequences if self._shapes.last is not None else 0

    def fit(self, own: Widths, full: Widths, leaf_ms: float, cost: Callable[[int], float], rate: float) -> Fitted:
        """The shape of a decode of decoding requests alone, where one more sequence costs `leaf_ms`.

        `own` are the best widths if all shapes cost the same, and `full` those that fill the last shape. A millisecond
        is worth `rate` tokens.
        """
        shape, requests = self._shapes.last, len(own.drafts)
        if shape is not None and self._holds(shape, full):
            spare = shape.sequences - full.leaves
            loss_ms = cost(shape.rows) - cost(own.rows) + (own.tokens - full.tokens) / rate + spare * leaf_ms
            loss_ms = math.copysign(max(0.0, loss_ms), shape.rows - own.rows)
            if self._shapes.keeps(loss_ms):
                return Fitted(full, spare, shape, loss_ms)
        each = next((count for count in _LEAVES if requests * count >= own.leaves), 0)
        spare = max(0, requests * min(each, self._most_leaves) - own.leaves)
        return Fitted(own, spare if spare * leaf_ms < _SMALL * self._shapes.graph_ms else 0)

    def _holds(self, shape: DecodeShape, widths: Widths) -> bool:
        return (
            widths.rows <= shape.rows
            and widths.outputs <= shape.outputs
            and widths.leaves <= shape.sequences <= len(widths.drafts) * self._most_leaves
        )

    def piece(self, rows: Rows, budget: int, cost: Callable[[int], float]) -> Piece:
        """The part of a longer prompt that a decode of these `rows` also reads, of at most `budget` rows.

        It is less than the budget if the decode then keeps the last shape. If it cannot, it is a little less, so that
        the next ones can although the budget shrinks while the prompt grows. The longer the pieces, the more seldom a
        graph lasts, because each 256 cells change it.
        """
        lasts = 1.0 - budget / SPAN_STEP
        if lasts <= 0.0:
            return Piece(budget)
        whole_ms = cost(len(rows) + budget)
        shape = self._shapes.last
        if shape is not None and sum(rows.outputs) <= shape.outputs and 0 < shape.rows - len(rows) <= budget:
            kept = shape.rows - len(rows)
            # A row costs no less than its logits.
            outputs_ms = cost(shape.rows + shape.outputs - sum(rows.outputs)) - cost(shape.rows)
            loss_ms = (whole_ms * (budget - kept) / budget + outputs_ms) / lasts
            if self._shapes.keeps(-loss_ms):
                return Piece(kept, shape.outputs, -loss_ms)
        return Piece(budget - int(budget * min(1.0, _SMALL * lasts * self._shapes.graph_ms / whole_ms)))


def give_outputs(rows: Rows, count: int) -> None:
    """Ask for logits of more rows, the last ones first, until `count` have some."""
    missing = count - sum(rows.outputs)
    for index in range(len(rows) - 1, -1, -1):
        if missing > 0 and not rows.outputs[index]:
            rows.outputs[index] = True
            missing -= 1
