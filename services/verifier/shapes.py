"""Says whether a decode keeps the shape of the one before, which spares a new graph, or has its own. Pure.

llama.cpp keeps the graph of one decode for the next of the same shape, and otherwise builds a new one: 0.3 ms of
processor time for a small model, some milliseconds with what a GPU prepares for it. Beside a GPU's rows that is dear,
and beside a CPU's it is nothing. So a decode keeps the shape if that loses less time than a graph takes.
"""

from collections import deque
from statistics import median
from typing import Final

from shared.model.rows import DecodeShape

_SEEN: Final = 15  # new graphs whose price is remembered; their median ignores outliers
_ENOUGH: Final = 5  # of them, before what was assumed is given up
_PATIENCE: Final = 3.0  # graphs; less follows every whim of the drafts, and more is late where they have changed
_DOUBT: Final = 4.0  # what is learned lies within this factor of what was assumed


class Shapes:
    def __init__(self, graph_ms: float) -> None:
        """A new graph is assumed to take `graph_ms` milliseconds; with 0 no decode keeps a shape for its sake."""
        self._assumed_ms = graph_ms
        self.last: DecodeShape | None = None  # of the decode before
        self._lean_ms = 0.0
        self._fresh_ms: float | None = None  # what the decode before took, if its graph was new
        self._seen: deque[float] = deque(maxlen=_SEEN)

    @property
    def graph_ms(self) -> float:
        """What a new graph costs: by how much the first decode of a shape took longer than the second."""
        if len(self._seen) < _ENOUGH:
            return self._assumed_ms
        return min(max(median(self._seen), self._assumed_ms / _DOUBT), self._assumed_ms * _DOUBT)

    def keeps(self, loss_ms: float) -> bool:
        """Whether the next decode should have the last shape, though its own would be better by |`loss_ms`|.

        The loss is positive if the last shape has too many rows, and negative if it has too few. Losses of both signs
        cancel out: where widths vary around a shape, another one is no better for long. Once those of one sign add up
        to the price of a few graphs, a new one is worth it.
        """
        return abs(loss_ms) < self.graph_ms and abs(self._lean_ms + loss_ms) < _PATIENCE * self.graph_ms

    def decoded(self, shape: DecodeShape, loss_ms: float, ms: float, reused: bool) -> None:
        """A decode took `ms` milliseconds; `loss_ms` as in `keeps`, 0 for its own shape."""
        same = shape == self.last
        if same and reused and self._fresh_ms is not None:
            self._seen.append(self._fresh_ms - ms)
        self._fresh_ms = None if reused else ms
        self._lean_ms = self._lean_ms + loss_ms if same else 0.0
        self.last = shape
