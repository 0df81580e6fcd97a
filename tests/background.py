"""A toy target that computes in the background, as a GPU does: the test says when a decode is done."""

import threading
from typing import Any

import numpy as np

from shared.law.sampling import Logits
from shared.model.rows import Rows
from tests.toys import ToyTarget


class BackgroundTarget(ToyTarget):
    """`decode` hands its rows to the device and sleeps until the test has called `compute`.

    There is one buffer for the logits of a decode, as in llama.cpp. From the begin of a decode on it holds NaNs, until
    the decode is computed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.reads_while_computing = 0
        self._begun, self._computed = threading.Event(), threading.Event()
        self._device: Rows | None = None
        self._buffers: list[Logits] = []

    def decode(self, rows: Rows) -> None:
        for buffer in self._buffers:
            buffer.fill(np.nan)
        self._device = rows
        self._begun.set()
        assert self._computed.wait(30), "the test never called `compute`"
        self._computed.clear()

    def wait_for_decode(self) -> None:
        """Return once the device has rows to compute."""
        assert self._begun.wait(30), "no decode began"

    def compute(self) -> None:
        """Be the device: compute the rows that wait, and let `decode` return."""
        rows, self._device = self._device, None
        assert rows is not None, "no decode waits"
        self._begun.clear()
        super().decode(rows)
        self._buffers = list(self._logits.values())
        self._computed.set()

    def logits(self, row: int) -> Logits:
        self.reads_while_computing += self._device is not None
        return super().logits(row)
