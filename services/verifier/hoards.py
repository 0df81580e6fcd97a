"""Takes back the memory of Redis that drafters fill with keys of their own.

A drafter may write as many keys under its own name as it likes, and as long ones. While Redis uses much of its memory,
every verifier adds up what each drafter's user holds. If all of them together hold more than a quarter, those with more
than an equal share of that quarter lose their keys and are refused for a minute. For that minute their keys are deleted
ten times a second, so what they can fill is what they can send in a tenth of a second.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import structlog

from shared.wire import keys
from shared.wire.broker import Reconnect
from shared.wire.commands import Redis
from shared.wire.messages import MAX_NAME

logger = structlog.get_logger()

REFUSED_S: Final = 60.0
_LOOK_S: Final = 1.0
_AGAIN_S: Final = 0.1  # while somebody is refused
_MUCH: Final = 2  # Redis is looked at once half of its memory is used
_SHARE: Final = 4  # all drafters together may then hold a quarter
_UNBOUNDED: Final = 1 << 30  # a server without a limit counts as one of so many bytes
_BATCH: Final = 1000  # keys in one reply
_OWNED: Final = (b"card", b"inbox", b"outbox", b"draft-vocabulary")  # kinds of keys that drafters write


def user_of(drafter: str) -> str:
    """The machine whose user this drafter has; all drafters without a mark share one."""
    machine, marked, _ = drafter[:MAX_NAME].partition(keys.OF_MACHINE)
    return machine if marked else "drafter"


def drafter_of(key: bytes) -> str:
    """The id of the drafter that owns this key; empty if it is not a drafter's."""
    _, kind, owner, *_ = (*key.split(b":", 3), b"", b"")
    return owner.decode(errors="replace") if kind in _OWNED and owner.startswith(b"drafter-") else ""


def excessive(held: Mapping[str, int], allowed: int) -> set[str]:
    """Who holds more than an equal share of `allowed` bytes; nobody as long as all together hold no more."""
    if sum(held.values()) <= allowed:
        return set()
    return {user for user, size in held.items() if size > allowed / len(held)}


class Hoards:
    """One per verifier."""

    def __init__(self, redis: Redis, clock: Callable[[], float]) -> None:
        """`clock` is monotonic, in seconds."""
        self._redis = redis
        self._clock = clock
        self._refused: dict[str, float] = {}  # user to the time until which it is refused

    def refuses(self, drafter: str) -> bool:
        """Whether this drafter's user filled Redis lately."""
        return self._refused.get(user_of(drafter), -math.inf) > self._clock()

    async def run(self) -> None:
        """Look for ever; survives Redis going away and coming back."""
        reconnect = Reconnect("hoards")
        while True:
            await reconnect.insist(self.look)
            await asyncio.sleep(_AGAIN_S if self._refused else _LOOK_S)

    async def look(self) -> None:
        """Find who holds too much, and delete the keys of all who are refused. Raises redis-py's errors."""
        self._refused = {user: until for user, until in self._refused.items() if until > self._clock()}
        used, limit = await self._memory()
        held = await self._held() if used * _MUCH >= limit else {}
        for user in excessive(held, limit // _SHARE):
            logger.warning("drafter_hoard", user=user, refused_s=REFUSED_S)
            self._refused[user] = self._clock() + REFUSED_S
        if self._refused:
            async for owned in self._owned():
                gone = [key for key, user in owned.items() if user in self._refused]
                if gone:
                    await self._redis.unlink(*gone)

    async def _memory(self) -> tuple[int, int]:
        """The bytes that Redis uses, and the bytes that it may use."""
        memory = await self._redis.info("memory")
        return int(memory["used_memory"]), int(memory["maxmemory"]) or _UNBOUNDED

    async def _held(self) -> Mapping[str, int]:
        """The bytes that each user's keys take."""
        held = Counter[str]()
        async for owned in self._owned():
            pipeline = self._redis.pipeline(transaction=False)
            for key in owned:
                pipeline.memory_usage(key, samples=0)  # 0: all elements, since a sample can be made to look small
            for user, size in zip(owned.values(), await pipeline.execute(), strict=True):
                held[user] += size or 0  # None: it has expired
        return held

    async def _owned(self) -> AsyncIterator[Mapping[bytes, str]]:
        """All keys that drafters own, with their users, in parts that are not empty."""
        cursor = -1
        while cursor:
            cursor, found = await self._redis.scan(max(0, cursor), match=keys.OF_DRAFTERS, count=_BATCH)
            owners = {key: drafter_of(key) for key in found}
            if owned := {key: user_of(owner) for key, owner in owners.items() if owner}:
                yield owned
