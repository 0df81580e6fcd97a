"""The health of a gateway: how late its event loop runs, and when Redis last accepted its heartbeat.

A gateway whose loop is blocked serves no client, though its process lives.
"""

import asyncio
import math
from collections import deque
from typing import Final

BEAT_S: Final = 0.5
SLOW_S: Final = 5.0  # clients and probes take a server for dead after so long without an answer
_MEMORY_S: Final = 10.0  # the usual interval between two probes


class LoopHealth:
    """Measures the loop by sleeping: every task waits as long as a sleep is late."""

    def __init__(self) -> None:
        self._due: float | None = None  # when the sleep under way should end
        self._lags: deque[tuple[float, float]] = deque()  # (when, how late)
        self._heard: float | None = None  # when Redis last took a heartbeat

    async def run(self) -> None:
        """Measure for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._due = loop.time() + BEAT_S
            await asyncio.sleep(BEAT_S)
            self.beat(loop.time())

    def beat(self, now: float) -> None:
        """Note that the sleep ended `now`, in seconds of the loop's clock."""
        if self._due is not None:
            self._lags.append((now, now - self._due))
        while self._lags[0][0] < now - _MEMORY_S:
            self._lags.popleft()

    def lag_s(self, now: float) -> float:
        """The worst of the last ten seconds, that of a sleep still under way included."""
        pending = 0.0 if self._due is None else now - self._due
        return max([0.0, pending, *(lag for when, lag in self._lags if when >= now - _MEMORY_S)])

    @property
    def lag(self) -> float:
        """`lag_s` as it is now."""
        return self.lag_s(asyncio.get_running_loop().time())

    def heard(self) -> None:
        """Note that Redis took a heartbeat now."""
        self._heard = asyncio.get_running_loop().time()

    def heartbeat_age(self) -> float:
        """Seconds since Redis last took a heartbeat; infinite if it never did."""
        return math.inf if self._heard is None else asyncio.get_running_loop().time() - self._heard
