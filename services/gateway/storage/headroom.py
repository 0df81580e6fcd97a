"""Whether Redis has room for more requests: what is admitted must be able to end, and its commits need room too."""

import asyncio
from contextlib import suppress
from typing import Final

from redis.exceptions import RedisError

from shared.wire.commands import Redis

_LOOK_S: Final = 1.0  # Redis is asked no more often
_FULL: Final = 0.9  # of its memory; the rest is for the answers to what was admitted


class Headroom:
    """One per gateway."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._looked = float("-inf")
        self._left = True

    async def left(self) -> bool:
        """Whether there is room, as of at most a second ago; always if Redis has no limit.

        A Redis that does not tell changes nothing: whether it takes a request shows when it is asked to.
        """
        now = asyncio.get_running_loop().time()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            with suppress(RedisError, OSError):
                memory = await self._redis.info("memory")
                limit = int(memory.get("maxmemory", 0))
                self._left = not limit or int(memory["used_memory"]) < _FULL * limit
        return self._left
