"""Responses that later requests may refer to: bounded in number, bytes and time, and readable only by their caller.

Redis holds them, so that any gateway can continue a conversation that another began.
"""

import re
import zlib
from typing import Any, Final

import msgspec

from shared.wire import keys
from shared.wire.commands import Redis
from shared.wire.scripts import Script

TTL_MS: Final = 24 * 3600 * 1000
MAX_COUNT: Final = 4096
MAX_BYTES: Final = 64 << 20  # compressed, of all callers together
MAX_ENTRY_BYTES: Final = 4 << 20
SHARE: Final = 4  # a caller with a key has a quarter of everything, so that it pushes out its own before others'

MAX_INFLATED_BYTES: Final = 256 << 20

_ID: Final = re.compile("resp_[0-9a-f]{1,64}")

# For all callers' responses and again for this caller's: numbers the bytes of all entries in order of arrival, and
# deletes those that end too far before the newest byte, and the oldest ones if there are too many. A deleted entry
# keeps its bytes until then. KEYS: index, size, entry, this caller's index and size. ARGV: entry, TTL in ms, most
# entries and bytes of all, and of this caller. Returns the keys to delete.
_KEEP: Final = Script("""
local entry, old = KEYS[3], {}
redis.call('SET', entry, ARGV[1], 'PX', ARGV[2])
local function bound(index, size, count, bytes)
  local stop = redis.call('INCRBY', size, #ARGV[1])
  redis.call('ZADD', index, stop, entry)
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', stop - bytes)) do old[#old + 1] = key end
  redis.call('ZREMRANGEBYSCORE', index, '-inf', stop - bytes)
  local surplus = redis.call('ZCARD', index) - count
  if surplus > 0 then
    for _, key in ipairs(redis.call('ZRANGE', index, 0, surplus - 1)) do old[#old + 1] = key end
    redis.call('ZREMRANGEBYRANK', index, 0, surplus - 1)
  end
  redis.call('PEXPIRE', index, ARGV[2])
  redis.call('PEXPIRE', size, ARGV[2])
end
bound(KEYS[1], KEYS[2], ARGV[3], ARGV[4])
bound(KEYS[4], KEYS[5], ARGV[5], ARGV[6])
return old
""")


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

    def of(self, caller: str) -> "ResponseStore":
        return ResponseStore(self._redis, caller, max_count=self._max_count, max_bytes=self._max_bytes)

    async def keep(self, stored: StoredResponse) -> bool:
        """Store a response, and drop the oldest of this caller or of all if needed; False if it is too big."""
        encoded = _encoder.encode(stored)
        data = zlib.compress(encoded, 1)
        share = SHARE if self._caller else 1
        own = [max(1, self._max_count // share), self._max_bytes // share]
        if len(encoded) > MAX_INFLATED_BYTES or len(data) > min(MAX_ENTRY_BYTES, own[1]):
            return False
        names = [keys.responses(), keys.responses_size(), self._key(stored.response["id"])]
        names += [keys.own_responses(self._caller), keys.own_responses_size(self._caller)]
        old = await _KEEP.run(self._redis, names, [data, TTL_MS, self._max_count, self._max_bytes, *own])
        if old:
            await self._redis.delete(*old)
        return True

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
        return _ID.fullmatch(response_id) is not None and await self._redis.delete(self._key(response_id)) > 0

    def _key(self, response_id: str) -> str:
        return keys.response(self._caller, response_id)
