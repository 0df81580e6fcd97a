"""What one caller may send in a minute: requests and bytes, counted for all gateways together.

Each caller has two buckets that fill evenly and hold a minute's worth, so a burst of that size passes at once.
"""

from typing import Final

from shared.wire import keys
from shared.wire.commands import Redis
from shared.wire.scripts import Script

# KEYS: allowance. ARGV: requests and bytes of a minute, 0 for no limit; bytes of this request. Takes both and returns
# 0, or takes nothing and returns the ms until both are there. A request larger than its bucket needs a full one.
_SPEND: Final = Script("""
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local kept = redis.call('HMGET', KEYS[1], 'at', 'requests', 'bytes')
local passed = math.max(0, now - (kept[1] or now))
local function fill(level, limit) return math.min(limit, (level or limit) + limit * passed / 60) end
local requests, bytes = fill(kept[2], ARGV[1]), fill(kept[3], ARGV[2])
local size = math.min(ARGV[3], ARGV[2])
local wait = 0
if tonumber(ARGV[1]) > 0 then wait = math.max(wait, (1 - requests) * 60 / ARGV[1]) end
if tonumber(ARGV[2]) > 0 then wait = math.max(wait, (size - bytes) * 60 / ARGV[2]) end
if wait > 0 then return math.ceil(wait * 1000) end
redis.call('HSET', KEYS[1], 'at', now, 'requests', requests - 1, 'bytes', bytes - size)
redis.call('PEXPIRE', KEYS[1], 60000)
return 0
""")
_CALLER: Final = 16  # digits of a caller's digest: enough to tell callers apart


class Allowance:
    """The allowances of all callers with keys. 0: no limit."""

    def __init__(self, redis: Redis, *, requests: int = 0, size: int = 0) -> None:
        """`requests` and `size` (bytes) are what one caller may send in a minute."""
        self._redis = redis
        self._requests = requests
        self._size = size

    async def spend(self, caller: str, size: int) -> float:
        """Take one request of `size` bytes: 0, or the seconds after which it may come again. Raises redis-py's errors.

        `caller` is a digest of a key, or "": programs of this machine, which have no limit.
        """
        if not caller or not (self._requests or self._size):
            return 0.0
        arguments = [self._requests, self._size, size]
        return int(await _SPEND.run(self._redis, [keys.allowance(caller[:_CALLER])], arguments)) / 1000
