"""Finds dead processes by how long their cards were not renewed while this process watched without a break.

Time in which Redis or this process was away does not count, so an outage never makes a living process look dead.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from shared.fleet.registry import HEARTBEAT_S
from shared.wire.broker import DISCONNECTED, Reconnect

CHECK_S: Final = 1.0  # how often to ask
# With a check before and a round after it, the requests of a dead gateway are free within 10 s. A process notices after
# at most 5 s that Redis is back, which must not be too late.
SILENT_S: Final = 3.5 * HEARTBEAT_S
AWAY_S: Final = 3 * CHECK_S  # after so long without a check, this process or its machine was stopped


class Liveness:
    """Which processes have been silent for too long. Pure; times are seconds of one clock."""

    def __init__(self, limit_s: float, away_s: float) -> None:
        self._limit_s = limit_s
        self._away_s = away_s
        self._heard: dict[str, float] = {}
        self._asked = -math.inf

    def dead(self, now: float, ages_s: Mapping[str, float]) -> set[str]:
        """The dead processes, given the age of each one's last sign of life; infinite for an expired card."""
        if now - self._asked > self._away_s:
            self.forget()
        self._asked = now
        # A process that is new here may never have sent a sign of life, so its silence begins now.
        self._heard = {name: max(self._heard.get(name, now), now - age) for name, age in ages_s.items()}
        return {name for name, heard in self._heard.items() if now - heard >= self._limit_s}

    def forget(self) -> None:
        """Start every silence again, because signs of life may have been missed."""
        self._heard = {}


async def watch(what: str, silence: Liveness, check: Callable[[float], Awaitable[None]]) -> None:
    """Check every second, for ever, with the seconds of a steady clock; survives Redis going away and coming back."""
    reconnect = Reconnect(what)
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            await check(asyncio.get_running_loop().time())
            reconnect.succeeded()
        except DISCONNECTED as error:
            silence.forget()
            await reconnect.failed(error)
