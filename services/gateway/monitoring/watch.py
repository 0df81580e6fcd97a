"""Snapshots of the fleet for watchers: one a second, made once for all of them, and none without a watcher.

A slow watcher gets the newest snapshot next, never a backlog. Each heartbeat adds to the totals of the last minutes,
with or without a watcher, so that a chart has a past.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from msgspec.structs import asdict
from redis.exceptions import RedisError

from shared.fleet.describe import describe
from shared.fleet.registry import HEARTBEAT_S
from shared.wire.broker import DISCONNECTED
from shared.wire.messages import Card

PERIOD_S: Final = 1.0  # the registry's view is no fresher
HISTORY_S: Final = 300.0
_LOOK_S: Final = 2.0  # after this, watchers are told that Redis does not answer


class FleetWatch:
    """Makes events of cards. `cards` may raise redis-py's errors; `clock` gives seconds since 1970."""

    def __init__(
        self,
        cards: Callable[[], Awaitable[Sequence[Card]]],
        encode: Callable[[Mapping[str, object]], bytes],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cards = cards
        self._encode = encode
        self._clock = clock
        self._history: deque[dict[str, Any]] = deque(maxlen=int(HISTORY_S / HEARTBEAT_S))
        self._readers = 0
        self._wanted = asyncio.Event()  # there is a watcher
        self._urgent = asyncio.Event()  # a watcher came that has no snapshot yet
        self._latest: bytes | None = None
        self._number = 0  # of the latest snapshot
        self._news = asyncio.Condition()
        self.ended = False

    def remember(self, cards: Sequence[Card]) -> None:
        """Keep a heartbeat's totals."""
        self._history.append({"at": self._now(), **asdict(describe(cards).totals)})

    def history(self) -> bytes:
        """The event with what was kept, oldest first."""
        return self._encode({"type": "history", "points": list(self._history)})

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Count as a watcher while the block lasts."""
        self._readers += 1
        self._wanted.set()
        if self._latest is None:
            self._urgent.set()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._wanted.clear()
                self._latest = None  # the next watcher would get an old snapshot

    async def next(self, seen: int) -> tuple[int, bytes] | None:
        """The newest event, as soon as there is one after number `seen`, with its number; None once this has ended."""
        async with self._news:
            await self._news.wait_for(lambda: self.ended or (self._latest is not None and self._number > seen))
        return None if self.ended or self._latest is None else (self._number, self._latest)

    async def run(self) -> None:
        """Make snapshots for ever, while there is a watcher."""
        while True:
            await self._wanted.wait()
            self._urgent.clear()
            latest = await self._look()
            async with self._news:
                if self._readers:
                    self._latest, self._number = latest, self._number + 1
                self._news.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):
                    await self._urgent.wait()

    async def end(self) -> None:
        """End all watchers."""
        async with self._news:
            self.ended = True
            self._news.notify_all()

    async def _look(self) -> bytes:
        try:
            async with asyncio.timeout(_LOOK_S):
                cards = await self._cards()
        except (RedisError, *DISCONNECTED):
            return self._encode({"type": "trouble", "at": self._now(), "message": "Redis does not answer."})
        return self._encode({"type": "status", "at": self._now(), **asdict(describe(cards))})

    def _now(self) -> float:
        return round(self._clock(), 3)
