"""Whether Redis has room for more requests: what is admitted must be able to end, and its commits need room too."""

import time
from collections.abc import Callable
from typing import Final

from shared.wire.commands import Redis

_LOOK_S: Final = 1.0  # Redis is asked no more often
_FULL: Final = 0.9  # of its memory; the rest is for the answers to what was admitted


class Headroom:
    """One per gateway."""

    def __init__(self, redis: Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._clock = clock
        self._looked = -_LOOK_S
        self._left = True

    async def left(self) -> bool:
        """Whether there is room, as of at most a second ago; always if Redis has no limit. Raises redis-py's errors."""
        now = self._clock()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            memory = await self._redis.info("memory")
            limit = int(memory.get("maxmemory", 0))
            self._left = not limit or int(memory["used_memory"]) < _FULL * limit
        return self._left
