"""Reads a fleet's cards, for commands that only show it."""

import asyncio
from contextlib import suppress
from typing import Final

from redis.exceptions import RedisError

from shared.fleet.registry import Registry
from shared.wire.broker import BLOCK_MS, BrokerError, connect
from shared.wire.messages import Card

_TIMEOUT_S: Final = 2 * BLOCK_MS / 1000


async def read_cards(redis: str) -> list[Card]:
    """The living processes of the fleet at `redis`. Raises `BrokerError`, one line, if they cannot be read now."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_TIMEOUT_S), connect(redis) as broker:
            return await list_cards(Registry(broker.redis), redis)
    raise BrokerError(redis, f"no answer within {_TIMEOUT_S:.0f} s; is the server running and the address right?")


async def list_cards(registry: Registry, redis: str) -> list[Card]:
    """The same over an open connection to the server at `redis`."""
    try:
        return await registry.list()
    except RedisError as error:
        raise BrokerError(redis, f"cannot be read ({' '.join(str(error).split())[:120]})") from None
