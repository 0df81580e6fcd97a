"""A service whose model is loaded does not give up because Redis is away at that moment."""

import asyncio

from redis.exceptions import ConnectionError as RedisConnectionError

from shared.process.lifecycle import insist
from tests.patience import HANG_S


async def test_it_is_done_as_soon_as_redis_is_there() -> None:
    tries = []

    async def enter() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise RedisConnectionError

    await insist("start", enter, asyncio.Event())
    assert len(tries) == 3


async def test_whoever_is_asked_to_stop_tries_no_further() -> None:
    stop = asyncio.Event()

    async def enter() -> None:
        stop.set()
        raise RedisConnectionError

    async with asyncio.timeout(HANG_S):
        await insist("start", enter, stop)
