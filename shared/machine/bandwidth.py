"""How fast this machine reads its memory: what limits a plain decode on its CPU, which reads every weight per token."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from shared.machine import resources

_BYTES: Final = 512 << 20  # several times the caches of most processors
_PASSES: Final = 5


def read_bandwidth(threads: int, size: int = _BYTES, clock: Callable[[], float] = time.perf_counter) -> float:
    """Bytes per second that so many `threads` read together, in the best of a few passes over `size` bytes.

    Takes under a second on an idle machine. 0 where memory is too short to measure it.
    """
    if resources.available_memory() < 2 * size:
        return 0.0
    buffer = np.ones(size, np.uint8)  # ones, because untouched zeros are all one page of memory
    parts = np.array_split(buffer, threads)
    shortest = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_PASSES):
            began = clock()
            # numpy finds a maximum with vector instructions, about as fast as memory delivers, and without the GIL.
            list(pool.map(np.max, parts))
            shortest = min(shortest, clock() - began)
    return size / shortest
