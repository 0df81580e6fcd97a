"""The events of responses in the background: one gateway writes them and any gateway reads them, each event once and in
order.

A record is a stream in Redis. Its gateway appends to it; a reader can continue after any event. It has one last event:
the script that appends it refuses everything after it. Records are bounded in bytes and time, and only their caller can
read them. Every method may raise redis-py's errors, and may be repeated after one.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from shared.wire import keys
from shared.wire.commands import Entries, Fields, Redis
from shared.wire.scripts import Script

ENDED_TTL_MS: Final = 3600 * 1000  # how long an answer can be read again from its middle
_MARGIN_MS: Final = 60_000  # a record outlives its request's deadline
MAX_ENTRY_BYTES: Final = 16 << 20
MAX_BYTES: Final = 64 << 20  # of all callers together
SHARE: Final = 4  # a caller with a key has a quarter of it

_ID: Final = re.compile("resp_[0-9a-f]{1,64}")
_FRAME: Final = b"frame"
_LAST: Final = b"last"
_ORIGIN: Final = b"origin"

# KEYS of both: record, records, sizes, recording.
_DROP: Final = """
local function of_caller(key) return string.match(key, '^(.*:)') end
local function grow(key, size)
  for _, field in ipairs({key, of_caller(key), 'total'}) do
    if redis.call('HINCRBY', KEYS[3], field, size) <= 0 then redis.call('HDEL', KEYS[3], field) end
  end
end
local function drop(key)
  local size = redis.call('HGET', KEYS[3], key)
  if size then grow(key, -size) end
  redis.call('ZREM', KEYS[2], key)
  redis.call('HDEL', KEYS[4], key)
  return redis.call('DEL', key)
end
"""
# If there is no room, the records that expire first are deleted: those of the caller if it has its share, else of all.
# Records that still grow expire after all ended ones, and are never deleted here. ARGV: number of the first event,
# whether it is the last, TTL in ms while it grows and afterwards, most bytes of this record, of all and of this caller,
# the writing gateway, origin, events.
_APPEND: Final = Script(
    _DROP
    + """
local record, base, last, events = KEYS[1], tonumber(ARGV[1]), ARGV[2] == '1', #ARGV - 9
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local newest = redis.call('XREVRANGE', record, '+', '-', 'COUNT', 1)[1]
local next = newest and tonumber(string.match(newest[1], '^%d+')) or 0
if not newest and base > 0 then
  drop(record)
  return 'gone'
end
if newest and newest[2][1] == 'last' then
  return last and newest[2][2] == ARGV[#ARGV] and 'ok' or 'ended'
end
if last and base < next then return 'behind' end
if not last and base > next then return 'gap' end
local fresh = math.max(base, next) + 1
local added, full = 0, false
for number = fresh, base + events do added = added + #ARGV[9 + number - base] end
if not last then
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do drop(key) end
  full = (redis.call('HGET', KEYS[3], record) or 0) + added > tonumber(ARGV[5])
  local function shrink(field, limit)
    if (redis.call('HGET', KEYS[3], field) or 0) + added <= tonumber(limit) then return end
    for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now + ARGV[4])) do
      if field == 'total' or of_caller(key) == field then
        drop(key)
        if (redis.call('HGET', KEYS[3], field) or 0) + added <= tonumber(limit) then return end
      end
    end
    full = true
  end
  if not full then shrink(of_caller(record), ARGV[7]) end
  if not full then shrink('total', ARGV[6]) end
  if full and not newest then return 'full' end
end
for number = fresh, base + events do
  local fields = {last and 'last' or 'frame', ARGV[9 + number - base]}
  if number == 1 then
    fields[3], fields[4] = 'origin', ARGV[9]
  end
  redis.call('XADD', record, number .. '-0', unpack(fields))
end
grow(record, added)
if newest and not last then return full and 'full' or 'ok' end
local ttl = tonumber(last and ARGV[4] or ARGV[3])
redis.call('ZADD', KEYS[2], now + ttl, record)
redis.call('PEXPIRE', record, ttl)
if last then
  redis.call('HDEL', KEYS[4], record)
else
  redis.call('HSET', KEYS[4], record, ARGV[8])
end
for index = 2, 4 do
  if redis.call('PTTL', KEYS[index]) < ttl then redis.call('PEXPIRE', KEYS[index], ttl) end
end
return 'ok'
"""
)
_FORGET: Final = Script(_DROP + "return drop(KEYS[1])")


class AppendOutcome(StrEnum):
    """The outcome of an append."""

    OK = "ok"  # now or at an earlier try
    ENDED = "ended"  # the record has its last event already
    GONE = "gone"  # it was deleted, or Redis lost it
    GAP = "gap"  # Redis lost some of the events before
    BEHIND = "behind"  # the record has events after the one that should be the last
    FULL = "full"  # a record that was begun has it, and has no room for more; one that was not is not begun


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where a response comes from: the gateway that writes it, and its job."""

    gateway: str
    model: str
    job: str


class RecordedEvent(msgspec.Struct, frozen=True):
    """One event as it is sent; `last`: no event follows."""

    number: int
    frame: bytes
    last: bool


class Record(msgspec.Struct, frozen=True):
    """A record as it is now, by its first and its newest event."""

    origin: Origin
    first: RecordedEvent
    newest: RecordedEvent


_origin = msgspec.msgpack.Decoder(Origin)


class RecordStore:
    """The records of one caller, by the ids of their responses."""

    def __init__(
        self, redis: Redis, caller: str = "", *, max_entry_bytes: int = MAX_ENTRY_BYTES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._redis = redis
        self._caller = caller
        self._max_entry_bytes = max_entry_bytes
        self._max_bytes = max_bytes

    def of(self, caller: str) -> "RecordStore":
        return RecordStore(self._redis, caller, max_entry_bytes=self._max_entry_bytes, max_bytes=self._max_bytes)

    def key(self, response_id: str) -> str:
        """The key of this response's record."""
        return keys.record(self._caller, response_id)

    async def begin(self, response_id: str, origin: Origin, frames: Sequence[bytes], timeout_ms: int) -> AppendOutcome:
        """A new record with its first events; the request takes `timeout_ms` at most. `OK` or `FULL`."""
        ttl_ms = timeout_ms + ENDED_TTL_MS + _MARGIN_MS
        return await self._append(self.key(response_id), 0, frames, ttl_ms=ttl_ms, origin=origin)

    async def append(self, response_id: str, number: int, frames: Sequence[bytes]) -> AppendOutcome:
        """Add events, the first of which has this number."""
        return await self._append(self.key(response_id), number, frames)

    async def finish(self, key: str, number: int, frame: bytes) -> AppendOutcome:
        """Add the last event of the record at this key; there is always room for it, also after lost events."""
        return await self._append(key, number, [frame], last=True)

    async def _append(
        self,
        key: str,
        number: int,
        frames: Sequence[bytes],
        *,
        ttl_ms: int = 0,
        origin: Origin | None = None,
        last: bool = False,
    ) -> AppendOutcome:
        share = SHARE if self._caller else 1
        bounds = [ttl_ms, ENDED_TTL_MS, self._max_entry_bytes, self._max_bytes, self._max_bytes // share]
        source = ["", b""] if origin is None else [origin.gateway, msgspec.msgpack.encode(origin)]
        reply = await _APPEND.run(self._redis, _names(key), [number, int(last), *bounds, *source, *frames])
        return AppendOutcome(reply.decode())

    async def find(self, response_id: str) -> Record | None:
        """The record, or None if it is unknown, too old, another caller's or damaged."""
        if not _ID.fullmatch(response_id):
            return None
        key = self.key(response_id)
        first = await self._redis.xrange(key, count=1)
        newest = await self.newest(key)
        if not first or newest is None:
            return None
        try:
            origin = _origin.decode(first[0][1].get(_ORIGIN, b""))
        except msgspec.MsgspecError:
            return None
        return Record(origin, _entry(*first[0]), newest)

    async def newest(self, key: str) -> RecordedEvent | None:
        """The newest event of the record at this key."""
        entries = await self._redis.xrevrange(key, count=1)
        return _entry(*entries[0]) if entries else None

    async def read(self, key: str, after: int = -1, count: int | None = None) -> list[RecordedEvent]:
        """At most `count` events after number `after`."""
        entries: Entries = await self._redis.xrange(key, min=f"({after + 1}-0" if after >= 0 else "-", count=count)
        return [_entry(*entry) for entry in entries]

    async def forget(self, response_id: str) -> bool:
        """Delete a record, whether or not it has ended; whether there was one."""
        if not _ID.fullmatch(response_id):
            return False
        return await self.drop(self.key(response_id))

    async def drop(self, key: str) -> bool:
        """Delete this key; whether it existed."""
        return bool(await _FORGET.run(self._redis, _names(key), []))

    async def growing(self) -> Mapping[str, str]:
        """The keys of all callers' records that have not ended, with the gateways that write them."""
        found = await self._redis.hgetall(keys.recording())
        return {key.decode(errors="replace"): gateway.decode(errors="replace") for key, gateway in found.items()}


def _names(key: str) -> list[str]:
    return [key, keys.records(), keys.record_sizes(), keys.recording()]


def cursor(after: int) -> bytes:
    """The id of the entry of this event in its stream; -1: before the first."""
    return f"{after + 1}-0".encode()


def _entry(entry_id: bytes, fields: Fields) -> RecordedEvent:
    last = fields.get(_LAST)
    return RecordedEvent(int(entry_id.partition(b"-")[0]) - 1, last or fields.get(_FRAME, b""), last is not None)
