"""The exact tokens of emitted tool calls, so that the next turn's prompt begins with what the target has cached."""

from collections.abc import Sequence
from typing import Final

import msgspec

from shared import keys
from shared.commands import Redis

TTL_MS: Final = 3_600_000  # as long as a user may take over one step of an agent

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, ...])


class TurnStore:
    """Turns by the id of their first call. Losing one costs a little prefill, never correctness."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def keep(self, call_id: str, tokens: Sequence[int]) -> None:
        """Remember a turn's tokens."""
        await self._redis.set(keys.turn(call_id), _encoder.encode(tuple(tokens)), px=TTL_MS)

    async def find(self, call_ids: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """The turns that are still known, by the same ids."""
        if not call_ids:
            return {}
        values = await self._redis.mget([keys.turn(call_id) for call_id in call_ids])
        return {
            call_id: _decoder.decode(value)
            for call_id, value in zip(call_ids, values, strict=True)
            if value is not None
        }
