"""Decodes of a model on a device, one after another from an empty sequence: their logits, and how long they take."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from shared.machine import resources
from shared.model.llama.backend_device import open_device
from shared.model.llama.context import Context
from shared.model.llama.model import Model
from shared.model.rows import Rows

_CTX: Final = 256
_WARM_UPS: Final = 2
_TIMED: Final = 5


class Decoding:
    """A model on `device`, named as our options name it. Use it as a context manager."""

    def __init__(self, path: Path, device: str) -> None:
        self._model = Model(path, devices=[open_device(device, "--device")])
        threads = resources.available_cores()
        self._context = Context(self._model, n_ctx=_CTX, sequences=1, unified=True, threads=threads, max_rows=64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()
        self._model.close()

    def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Those of all `tokens`, read at once into an empty sequence: a row each."""
        self._context.truncate(0, 0)
        rows = Rows()
        for position, token in enumerate(tokens):
            rows.add(token % self._context.n_vocab, position, (0,), True)
        self._context.decode(rows)
        return np.array([self._context.logits(row) for row in range(len(tokens))])

    def milliseconds(self) -> float:
        """The median of a few decodes of one row; the reading of logits waits for the device."""
        times = []
        for _ in range(_WARM_UPS + _TIMED):
            begin = time.perf_counter()
            self.logits([1000])
            times.append((time.perf_counter() - begin) * 1000)
        return statistics.median(times[_WARM_UPS:])
