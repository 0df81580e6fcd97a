"""Measures whether this device computes this model's logits bit for bit, and caches that with the row costs.

The cache on disk is keyed by model file, device and build, so only the first start measures.
`shared.model.row_costs` measures the row costs.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import structlog

from shared.law.sampling import BrokenLogits, Logits
from shared.model import row_costs
from shared.model.rows import Rows
from shared.model.target import Target

logger = structlog.get_logger()

PROBE_ROWS: Final = 72  # rows of the probe's largest decode, because ggml changes kernels at 64
_TIMES: Final = 8  # how often the probe computes each row, about
FEW_PROBE_ROWS: Final = 8  # enough to estimate the differences if logits need not be bit-equal
# If a single row takes longer or shorter than the cached time by more than this factor, the cache is not used: the
# machine was busy at the measurement, or has changed.
_TOLERANCE: Final = 1.25
_VERSION: Final = 5  # part of the cache key; raise it when the meaning of the cached numbers changes


@dataclass(frozen=True, slots=True)
class LogitDifferences:
    """The largest differences in logits between two ways to compute the same row; 0.0 means bit-equal."""

    single_row: float  # one row per decode against many
    rows: float  # two or more rows per decode against many
    neighbours: float  # beside rows of another sequence
    cells: float  # in cells that another sequence has freed
    threads: float = 0.0  # with fewer threads

    @property
    def at_no_cost(self) -> bool:
        """Whether logits are bit-equal without padding."""
        return self.single_row == 0.0 and self.with_padding

    @property
    def with_padding(self) -> bool:
        """Whether logits are bit-equal as long as no sequence has a single row in a decode."""
        return self.rows == self.neighbours == self.cells == 0.0

    @property
    def noise(self) -> float:
        return max(self.single_row, self.rows, self.neighbours, self.cells, self.threads)


def _difference(one: list[Logits], other: list[Logits]) -> float:
    return float(max(np.abs(a - b).max() for a, b in zip(one, other, strict=False)))


def still_holds(target: Target, tokens: list[int], rows: dict[int, float]) -> bool:
    """Whether a single row still costs what the table says. The first sequence must be empty, and is left empty."""
    fresh = row_costs.time_rows(target, tokens, (1,)).costs[1]
    return rows[1] / _TOLERANCE <= fresh <= rows[1] * _TOLERANCE


def measure_exactness(
    target: Target,
    tokens: list[int],
    most: int = PROBE_ROWS,
    told: Callable[[float], object] = lambda share: None,
    threads: tuple[int, int] = (0, 0),
) -> LogitDifferences:
    """How much logits depend on what else is in the decode or the cache, by `most` rows. Leaves every sequence empty.

    Only `PROBE_ROWS` rows show that nothing differs. Each row is computed about eight times, which takes a large model
    on a CPU half a minute; `told` gets the share that is done. `threads` are the target's, and how many it has at times
    instead (0: it always has as many). Raises `BrokenLogits` if the model gives numbers that are not finite even here.
    """
    count = min(len(tokens), most, target.n_ctx)
    half, tail, computed = count // 2, 6, 0

    def decode(*runs: tuple[int, int, int]) -> list[Logits]:
        """Decode runs of (sequence, start, count) together; returns the logits of the first run's rows."""
        rows = Rows()
        for index, (sequence, start, length) in enumerate(runs):
            for position in range(start, start + length):
                rows.add(tokens[position], position, (sequence,), index == 0)
        target.decode(rows)
        nonlocal computed
        computed += len(rows)
        told(min(1.0, computed / (_TIMES * count)))
        logits = [target.logits(row).copy() for row in range(runs[0][2])]
        if not all(np.isfinite(row.max()) for row in logits):
            raise BrokenLogits("a row of logits is not finite")
        return logits

    def clear() -> None:
        for sequence in range(target.sequences):
            target.truncate(sequence, 0)

    def in_pieces(widths: Iterable[int]) -> float:
        clear()
        found: list[Logits] = []
        for width in widths:
            found += decode((0, len(found), width))
        return _difference(reference, found)

    clear()
    reference = decode((0, 0, count))
    single = in_pieces([count - tail] + [1] * tail)
    rows = max(in_pieces(_widths(width, count)) for width in (2, 5, 9, half))
    neighbours = cells = 0.0
    if target.sequences > 1:
        clear()
        decode((1, 0, half))
        found = decode((0, 0, half), (1, half, 3))
        found += decode((0, half, count - half), (1, half + 3, 2))
        neighbours = _difference(reference, found)
        clear()
        decode((1, 0, half))
        found = decode((0, 0, half))
        target.truncate(1, 0)
        found += decode((0, half, count - half))
        cells = _difference(reference, found)
    fewer = 0.0
    if threads[1]:
        target.use_threads(threads[1])
        fewer = in_pieces([count - tail, tail])
        target.use_threads(threads[0])
    clear()
    return LogitDifferences(single, rows, neighbours, cells, fewer)


def _widths(width: int, count: int) -> Iterator[int]:
    """The widths of `count` rows in pieces of `width`, without a remainder of one row."""
    for start in range(0, count, width):
        if count - start > 1:
            yield min(width, count - start)


class Cache:
    """Measurements on disk, one small JSON file per model, device, build and context layout."""

    def __init__(self, folder: Path, model: Path, **conditions: object) -> None:
        stat = model.stat()
        identity = [str(model.resolve()), stat.st_size, stat.st_mtime_ns, _VERSION, sorted(conditions.items())]
        name = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:24]
        self._path = folder / f"{name}.json"

    def load(self) -> tuple[dict[int, float], LogitDifferences] | None:
        """The measurements of an earlier start, without times if the machine was busy; None if there are none or the
        file is damaged."""
        try:
            data = json.loads(self._path.read_text())
            return {int(count): float(ms) for count, ms in data["rows"].items()}, LogitDifferences(**data["exactness"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def store(self, rows: dict[int, float], exactness: LogitDifferences) -> None:
        """Save the measurements; if the disk cannot be written, the next start measures again."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(json.dumps({"rows": rows, "exactness": asdict(exactness)}))
            temporary.replace(self._path)
        except OSError as error:
            logger.warning("calibration_not_cached", error=str(error))


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a start measured, and where that is kept."""

    rows: dict[int, float]
    exactness: LogitDifferences
    cache: Cache | None = None
    is_noisy: bool = False  # something else used the machine, so the costs of rows are measured again later
    tokens: tuple[int, ...] = ()  # the text that it was measured with

    def renew(self, rows: dict[int, float]) -> None:
        """Keep better costs of rows for the next start."""
        if self.cache is not None:
            self.cache.store(rows, self.exactness)


SETTLED: Final = Calibration({}, LogitDifferences(0.0, 0.0, 0.0, 0.0))  # nothing to measure again
