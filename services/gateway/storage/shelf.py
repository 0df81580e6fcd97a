"""Values of all callers in a bounded number of bytes, shared fairly.

When there is no room for a new value, the caller that holds the most loses its oldest ones. So a caller may use what
nobody else needs, and however many others flood, none is pushed below an equal share of all bytes.
"""

from typing import Final

from shared.wire import keys
from shared.wire.commands import Redis
from shared.wire.scripts import Script

# An item is "<cost> <caller> <key>". It counts as long as its caller's list has it. KEYS: the value, items of all
# callers and of this one by when they expire, and what each caller holds; `*` holds what all do. ARGV: caller, the
# least that a value costs, the beginning of the keys of callers' lists.
_HELPERS: Final = """
local value, all, own, held, caller = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local function grow(who, cost)
  for _, name in ipairs({who, '*'}) do
    if tonumber(redis.call('ZINCRBY', held, cost, name)) <= 0 then redis.call('ZREM', held, name) end
  end
end
local function item(size) return string.format('%d %s %s', math.max(size, tonumber(ARGV[2])), caller, value) end
local function drop(one)
  local cost, who, key = string.match(one, '^(%d+) ([^ ]*) (.*)$')
  if redis.call('ZREM', ARGV[3] .. who, one) == 1 then grow(who, -cost) end
  redis.call('ZREM', all, one)
  return redis.call('DEL', key)
end
local function forget()
  local size = redis.call('STRLEN', value)
  return size > 0 and drop(item(size)) or 0
end
"""
# ARGV besides: TTL in ms, most bytes of all, the value. What Redis lost of the counts is counted again. Of callers that
# hold equally much, the one with the oldest value loses it.
_PUT: Final = Script(
    _HELPERS
    + """
local time, ttl = redis.call('TIME'), tonumber(ARGV[4])
local now = time[1] * 1000000 + time[2]
if redis.call('EXISTS', own) == 0 then grow(caller, -(redis.call('ZSCORE', held, caller) or 0)) end
if redis.call('EXISTS', held) == 0 then
  for _, one in ipairs(redis.call('ZRANGE', all, 0, -1)) do
    local cost, who = string.match(one, '^(%d+) ([^ ]*) ')
    grow(who, cost)
  end
end
forget()
for _, one in ipairs(redis.call('ZRANGEBYSCORE', all, '-inf', now)) do drop(one) end
local new = item(#ARGV[6])
redis.call('SET', value, ARGV[6], 'PX', ttl)
redis.call('ZADD', all, now + ttl * 1000, new)
redis.call('ZADD', own, now + ttl * 1000, new)
grow(caller, tonumber(string.match(new, '%d+')))
for _, key in ipairs({all, own, held}) do redis.call('PEXPIRE', key, ttl) end
while tonumber(redis.call('ZSCORE', held, '*') or 0) > tonumber(ARGV[5]) do
  local first = redis.call('ZREVRANGE', held, 0, 1)
  local most = redis.call('ZSCORE', held, first[1] == '*' and first[2] or first[1])
  local oldest, since
  for _, who in ipairs(redis.call('ZREVRANGEBYSCORE', held, most, most, 'LIMIT', 0, 65)) do
    local one = redis.call('ZRANGE', ARGV[3] .. who, 0, 0, 'WITHSCORES')
    if who == '*' then
      -- not a caller
    elseif not one[1] then
      grow(who, -most)
    elseif not since or tonumber(one[2]) < since then
      oldest, since = one[1], tonumber(one[2])
    end
  end
  if oldest then drop(oldest) end
  if not first[2] then redis.call('ZREM', held, '*') end
end
return redis.call('EXISTS', value)
"""
)
_FORGET: Final = Script(_HELPERS + "return forget()")


class Shelf:
    """The values of one kind. Every method may raise redis-py's errors, and may be repeated after one."""

    def __init__(self, redis: Redis, kind: str, max_bytes: int, least: int, ttl_ms: int) -> None:
        """All values together take `max_bytes` at most, where each counts as `least` bytes or more."""
        self._redis = redis
        self._kind = kind
        self._max_bytes = max_bytes
        self._least = least
        self._ttl_ms = ttl_ms

    async def put(self, caller: str, key: str, value: bytes) -> bool:
        """Store a value of this caller; False if it alone is more than the caller may have now."""
        more = [self._ttl_ms, self._max_bytes, value]
        return bool(await _PUT.run(self._redis, self._names(caller, key), [*self._given(caller), *more]))

    async def forget(self, caller: str, key: str) -> bool:
        """Delete a value of this caller; whether there was one."""
        return bool(await _FORGET.run(self._redis, self._names(caller, key), self._given(caller)))

    def _names(self, caller: str, key: str) -> list[str]:
        return [key, keys.shelf(self._kind), keys.shelf_of(self._kind, caller), keys.shelf_held(self._kind)]

    def _given(self, caller: str) -> list[str | int]:
        return [caller, self._least, keys.shelf_of(self._kind, "")]
