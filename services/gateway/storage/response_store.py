"""Responses that later requests may refer to: bounded in number, bytes and time, and readable only by their caller.

Redis holds them, so that any gateway can continue a conversation that another began.
"""

import re
import zlib
from typing import Any, Final

import msgspec

from services.gateway.storage.shelf import Shelf
from shared.wire import keys
from shared.wire.commands import Redis

TTL_MS: Final = 24 * 3600 * 1000
MAX_COUNT: Final = 4096
MAX_BYTES: Final = 64 << 20  # compressed, of all callers together
MAX_ENTRY_BYTES: Final = 4 << 20
MAX_INFLATED_BYTES: Final = 256 << 20

_ID: Final = re.compile("resp_[0-9a-f]{1,64}")


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response object, and all items of the conversation up to it."""

    response: dict[str, Any]
    items: list[dict[str, Any]]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(StoredResponse)


class ResponseStore:
    """The responses of one caller, by their ids. Every method may raise redis-py's errors."""

    def __init__(
        self, redis: Redis, caller: str = "", *, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES
    ) -> None:
        self._redis = redis
        self._caller = caller
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._shelf = Shelf(redis, "responses", max_bytes, max_bytes // max_count, TTL_MS)

    def of(self, caller: str) -> "ResponseStore":
        return ResponseStore(self._redis, caller, max_count=self._max_count, max_bytes=self._max_bytes)

    async def keep(self, stored: StoredResponse) -> bool:
        """Store a response, and drop the oldest of the caller that holds the most if needed; False if it is too big."""
        encoded = _encoder.encode(stored)
        data = zlib.compress(encoded, 1)
        if len(encoded) > MAX_INFLATED_BYTES or len(data) > min(MAX_ENTRY_BYTES, self._max_bytes):
            return False
        return await self._shelf.put(self._caller, self._key(stored.response["id"]), data)

    async def find(self, response_id: str) -> StoredResponse | None:
        """The response, or None if it is unknown, too old, another caller's or damaged."""
        data = await self._redis.get(self._key(response_id)) if _ID.fullmatch(response_id) else None
        if data is None:
            return None
        try:
            return _decoder.decode(zlib.decompressobj().decompress(data, MAX_INFLATED_BYTES))
        except (zlib.error, msgspec.MsgspecError):
            return None

    async def forget(self, response_id: str) -> bool:
        """Delete a response; whether there was one."""
        return _ID.fullmatch(response_id) is not None and await self._shelf.forget(self._caller, self._key(response_id))

    def _key(self, response_id: str) -> str:
        return keys.response(self._caller, response_id)
