"""A target whose decodes take as long as a cost curve says: emulation, for machines without the hardware."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.paced import bigram
from shared.errors import StartError
from shared.law.sampling import Logits
from shared.law.speedup import RowCosts
from shared.model.rows import MAX_LEAVES, LlamaError, Rows

_MOST_ROWS: Final = 512


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds of a decode by its rows: `base_ms` + `row_ms` for each row."""

    base_ms: float
    row_ms: float

    def __call__(self, rows: float) -> float:
        return self.base_ms + self.row_ms * rows

    @property
    def costs(self) -> RowCosts:
        """What a calibration would have measured."""
        return RowCosts({1: self(1), _MOST_ROWS: self(_MOST_ROWS)})

    def __str__(self) -> str:
        return f"{self.base_ms:g}+{self.row_ms:g}"


def parse_curve(text: str) -> Curve:
    """ "100+3": 100 ms and 3 ms per row. Raises `StartError` naming `--curve`."""
    base, plus, row = text.partition("+")
    try:
        curve = Curve(float(base), float(row))
    except ValueError:
        curve = Curve(0.0, 0.0)
    if not plus or curve.base_ms < 0 or curve.row_ms < 0 or curve(1) <= 0:
        raise StartError("--curve", text, "must be milliseconds per decode and per row, such as 100+3")
    return curve


def sleep_until(moment: float) -> None:
    """Sleep until `moment` of `time.perf_counter`: on no core, and without the GIL, as one waits for a GPU."""
    remaining = moment - time.perf_counter()
    if remaining > 0:
        time.sleep(remaining)


class Emulated:
    """A `Target` that speaks the language of `bench.paced.bigram`, as a GPU that computes in the background would.

    A decode costs no CPU time. Its rows of logits are real float32 rows of the whole vocabulary, made beforehand.
    """

    branches = MAX_LEAVES - 1
    max_rows = _MOST_ROWS
    can_roll_back = can_copy = unified = True
    states = None
    reused_graphs = 0

    def __init__(
        self,
        table: bigram.Table,
        curve: Curve,
        *,
        n_ctx: int,
        sequences: int,
        clock: Callable[[], float] = time.perf_counter,
        until: Callable[[float], None] = sleep_until,
    ) -> None:
        self.n_ctx, self.n_vocab, self.sequences = n_ctx, table.shape[1], sequences
        self._table, self._curve = table, curve
        self._clock, self._until = clock, until
        self._tokens: list[int] = []

    def decode(self, rows: Rows) -> None:
        """Return when the curve says. Raises `LlamaError` for no rows or too many."""
        due = self._clock() + self._curve(len(rows)) / 1000
        if not 0 < len(rows) <= self.max_rows:
            raise LlamaError(f"a decode takes 1 to {self.max_rows} rows, not {len(rows)}")
        self._tokens = rows.tokens
        self._until(due)

    def use_threads(self, count: int) -> None:
        """It computes with none."""

    def logits(self, row: int) -> Logits:
        return bigram.after(self._table, self._tokens[row])

    def floor(self, sequence: int) -> int:
        """It forgets nothing."""
        return 0

    def truncate(self, sequence: int, length: int) -> int:
        """Nothing to forget: what follows depends on the last token alone."""
        return length

    def copy(self, source: int, target: int, length: int, start: int = 0) -> int:
        return length

    def clear(self) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """Nothing to free."""
