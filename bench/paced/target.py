"""A target whose decodes take as long as a cost curve says: emulation, for machines without the hardware.

Tokens, drafts, messages and the scheduler's decisions are real; only the time of a decode is not.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from shared.errors import StartError
from shared.law.speedup import RowCosts
from shared.model.rows import Rows
from shared.model.target import Target

_MOST_ROWS: Final = 512
_EARLY_S: Final = 0.0002  # sleeps end about a tenth of a millisecond late; the rest is spent yielding


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


def wait_until(moment: float) -> None:
    """Return at `moment` of `time.perf_counter`, some 40 µs late, without keeping other threads from running."""
    remaining = moment - time.perf_counter()
    if remaining > _EARLY_S:
        time.sleep(remaining - _EARLY_S)
    while time.perf_counter() < moment:
        time.sleep(0)


class Paced:
    """A `Target` that computes what `inner` computes, in the time of `curve`.

    A decode that takes `inner` longer than the curve is as slow as it is: `overruns` counts them.
    """

    def __init__(
        self,
        inner: Target,
        curve: Curve,
        max_rows: int = 0,
        *,
        clock: Callable[[], float] = time.perf_counter,
        until: Callable[[float], None] = wait_until,
    ) -> None:
        """`max_rows` bounds the rows of a decode below what `inner` takes; 0 leaves that as it is."""
        self._inner = inner
        self._curve = curve
        self._clock, self._until = clock, until
        self.max_rows = min(max_rows or inner.max_rows, inner.max_rows)
        self.overruns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # everything but time is the inner target's

    def decode(self, rows: Rows) -> None:
        """Decode, and return no sooner than the curve says."""
        due = self._clock() + self._curve(len(rows)) / 1000
        self._inner.decode(rows)
        if self._clock() > due:
            self.overruns += 1
        self._until(due)
