"""The durable plane's state machine as Lua scripts behind typed functions with typed outcomes.

Each script is atomic and idempotent: sending it again after a lost reply changes nothing more. Time is Redis's own,
so two hosts' clocks are never compared. All keys of a script are declared, for ACLs; they lie in different cluster
slots, so Redis Cluster is not supported.

A job's `state` is `running`, `cancelled` or `finished`; its `epoch` counts claims and fences zombies. `silent` names
the claims since the last commit whose verifiers have not reported again, as `<epoch>` each: a job with several has
probably killed them. A verifier that was only late, frozen or disconnected reports when its commit comes too late.

Waiting jobs are in lanes, one per caller, and only the first job of each lane is in the job stream. When it is claimed
or ends, the caller's next job goes to the stream's end. So callers take turns: between two claims of a caller, every
other waiting caller has one, whatever the lengths of their lanes. No caller can take all places: a caller is refused
once it has `SHARE` times the free places, so that some are left for others (dynamic thresholds: Choudhury and Hahne
1998). Callers without keys share one lane and may take every place.
"""

import hashlib
from enum import StrEnum
from typing import Any, Final

from redis.exceptions import NoScriptError

from shared.wire import keys
from shared.wire.commands import Pipeline, Redis

STREAM_TTL_MS: Final = 24 * 3600 * 1000  # idle model streams expire after a day; every submit renews them
ENDED_TTL_MS: Final = 600 * 1000  # an ended log stays readable for resumption
OVERTAKEN_TTL_MS: Final = 60 * 1000  # longer than a sent submit can be on its way
DEAD_LETTERS: Final = 100  # how many given-up jobs are kept
DEAD_TTL_MS: Final = 7 * 24 * 3600 * 1000
MAX_SILENT: Final = 3  # silent claims after which a job counts as poison
SHARE: Final = 7  # one caller alone gets seven eighths of everything, two get seven fifteenths each


class ScriptOutcome(StrEnum):
    """The result of a script, or why it refused."""

    OK = "ok"
    DUPLICATE = "duplicate"  # this exact change was made before, so it counts as ok
    FULL = "full"  # not admitted: there is no place for any caller
    OVER = "over"  # not admitted: this caller has its share
    GONE = "gone"  # the job does not exist or has expired
    STALE = "stale"  # another verifier claimed it since
    HELD = "held"  # its lease is alive
    GAP = "gap"  # base is beyond the log: Redis lost commits, or a bug; stop loudly
    CANCELLED = "cancelled"
    FINISHED = "finished"
    DEADLINE = "deadline"
    POISON = "poison"
    DAMAGED = "damaged"  # its key in Redis is not a job that this release can read


_NOW = "local time = redis.call('TIME'); local now = time[1] * 1000 + math.floor(time[2] / 1000)\n"

# KEYS of these: job, log, admitted, jobs, lanes, shares. A share is "<tokens> <caller> <microseconds>"; its place in
# the lanes has the id instead of the tokens, and last, so that a caller's places lie side by side in order of age.
LANES: Final = f"""
local function enter(job, id)
  redis.call('HSET', job, 'entry', redis.call('XADD', KEYS[4], '*', 'r', id))
end
local function queued(entry)
  return entry ~= '' and #redis.call('XRANGE', KEYS[4], entry, entry) > 0
end
local function place(id, share)
  local caller, moment = string.match(share, '^%d+ (%w*) (%d+)$')
  return caller .. ' ' .. moment .. ' ' .. id, caller
end
local function advance(caller)
  while true do
    local first = redis.call('ZRANGEBYLEX', KEYS[5], '[' .. caller .. ' ', '(' .. caller .. '!', 'LIMIT', 0, 1)[1]
    if not first then return end
    local id = string.match(first, '^%w* %d+ (.*)$')
    local job = string.format('{keys.job("%s")}', id)  -- of another request, so it cannot be declared
    local found = redis.call('HMGET', job, 'state', 'entry')
    if found[1] == 'running' then
      if not queued(found[2]) then enter(job, id) end
      return
    end
    redis.call('ZREM', KEYS[5], first)  -- the job has expired
  end
end
local function depart(id)
  local share = redis.call('HGET', KEYS[6], id)
  if not share then return end
  local first, caller = place(id, share)
  if redis.call('ZREM', KEYS[5], first) == 1 then advance(caller) end
end
local function leave(id)
  redis.call('ZREM', KEYS[3], id)
  depart(id)
  redis.call('HDEL', KEYS[6], id)
end
"""

# Ends a job once, in whatever script decides that it ends. Nothing reads the job itself any more, and its prompt may be
# large, so it goes now; the state and the log stay for late readers.
_FINISH = (
    LANES
    + f"""
local function conclude(job, log, id, state, entry_id, payload)
  redis.call('XADD', log, entry_id, 'c', payload)
  redis.call('HSET', job, 'state', state)
  redis.call('HDEL', job, 'payload')
  redis.call('PEXPIRE', job, {ENDED_TTL_MS})
  redis.call('PEXPIRE', log, {ENDED_TTL_MS})
  local entry = redis.call('HGET', job, 'entry')
  if entry ~= '' then
    redis.call('XACK', KEYS[4], ARGV[2], entry)
    redis.call('XDEL', KEYS[4], entry)
  end
  leave(id)
end
local function finish(state, entry_id, payload)
  conclude(KEYS[1], KEYS[2], ARGV[1], state, entry_id, payload)
end
"""
)
# A claim that failed, but did not kill its verifier.
_STALE = """
local function stale()
  local silent = redis.call('HGET', KEYS[1], 'silent')
  if silent then redis.call('HSET', KEYS[1], 'silent', (string.gsub(silent, '<' .. ARGV[3] .. '>', ''))) end
  return 'stale'
end
"""


class Script:
    """One Lua script, run by digest and loaded when the server does not know it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    async def run(self, redis: Redis, names: list[str], arguments: list[Any]) -> Any:
        try:
            return await redis.evalsha(self.digest, len(names), *names, *arguments)
        except NoScriptError:
            return await redis.eval(self.source, len(names), *names, *arguments)

    def queue(self, pipeline: Pipeline, names: list[str], arguments: list[Any], known: bool) -> None:
        """Add a call to a pipeline. If the server answers NOSCRIPT, the caller repeats it as one not `known` there."""
        if known:
            pipeline.evalsha(self.digest, len(names), *names, *arguments)
        else:
            pipeline.eval(self.source, len(names), *names, *arguments)


def names(request_id: str, model: str) -> list[str]:
    """The keys that every script of a request takes, in order."""
    own = [keys.job(request_id), keys.log(request_id)]
    return [*own, keys.admitted(model), keys.jobs(model), keys.lanes(model), keys.shares(model)]


# ARGV: request id, group, payload, limit, timeout ms, reader, caller, tokens, the caller's limit, limit of tokens,
# chunk for a passed deadline. No other script may ever look at a job that waits in a lane, so this one writes its end.
SUBMIT: Final = Script(
    _NOW
    + _FINISH
    + f"""
local function expire(id)
  local job, log = string.format('{keys.job("%s")}', id), string.format('{keys.log("%s")}', id)
  local found = redis.call('HMGET', job, 'state', 'committed')
  if found[1] == 'running' then conclude(job, log, id, 'finished', found[2] .. '-2', ARGV[11]) else leave(id) end
end
if redis.call('EXISTS', KEYS[1]) == 1 then return 'duplicate' end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)) do expire(id) end
local caller, tokens = ARGV[7], tonumber(ARGV[8])
local limit, caller_limit, token_limit = tonumber(ARGV[4]), tonumber(ARGV[9]), tonumber(ARGV[10])
local live, live_tokens, own, own_tokens = redis.call('ZCARD', KEYS[3]), 0, 0, 0
-- Counted anew each time: a counter would keep what a crash or an expiry took from it.
for _, share in ipairs(redis.call('HVALS', KEYS[6])) do
  local size, who = string.match(share, '^(%d+) (%w*) ')
  live_tokens = live_tokens + size
  if who == caller then own, own_tokens = own + 1, own_tokens + size end
end
if caller_limit > 0 and own >= caller_limit then return 'over' end
if live >= limit then return 'full' end
if caller ~= '' and own >= {SHARE} * (limit - live) then return 'over' end
if token_limit > 0 and live_tokens > 0 then
  if live_tokens + tokens > token_limit then return 'full' end
  if caller ~= '' and own_tokens >= {SHARE} * (token_limit - live_tokens) then return 'over' end
end
local deadline = now + ARGV[5]
redis.call('ZADD', KEYS[3], deadline, ARGV[1])
local share = tokens .. ' ' .. caller .. ' ' .. time[1] .. string.format('%06d', tonumber(time[2]))
redis.call('HSET', KEYS[1], 'payload', ARGV[3], 'epoch', 0, 'committed', 0, 'lease', 0, 'silent', '',
  'state', 'running', 'deadline', deadline, 'entry', '', 'reader', ARGV[6], 'share', share)
redis.call('HSET', KEYS[6], ARGV[1], share)
redis.call('ZADD', KEYS[5], 0, (place(ARGV[1], share)))
advance(caller)
redis.call('PEXPIRE', KEYS[1], ARGV[5] + {ENDED_TTL_MS})
for index = 3, 6 do redis.call('PEXPIRE', KEYS[index], {STREAM_TTL_MS}) end
return 'ok'
"""
)

# ARGV: request id, group, owner, lease ms, chunk for a passed deadline, chunk for a poison job; KEYS[7]: dead letters
# An owner that asks again did not get the reply: it gets a new epoch at once, and this counts as no failure.
CLAIM: Final = Script(
    _NOW
    + _FINISH
    + f"""
local job = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'committed', 'lease', 'deadline', 'silent', 'payload',
  'owner', 'entry')
if not job[1] then
  leave(ARGV[1])
  return {{'gone'}}
end
if job[2] ~= 'running' then return {{'finished'}} end
if now >= tonumber(job[5]) then
  finish('finished', job[3] .. '-2', ARGV[5])
  return {{'deadline'}}
end
local silent = job[6] or ''
if tonumber(job[4]) > now then
  if job[8] ~= ARGV[3] then return {{'held'}} end
  silent = string.gsub(silent, '<' .. job[1] .. '>', '')
else
  local _, count = string.gsub(silent, '<', '<')
  if count >= {MAX_SILENT} then
    finish('finished', job[3] .. '-2', ARGV[6])
    redis.call('XADD', KEYS[7], 'MAXLEN', '~', {DEAD_LETTERS}, '*',
      'r', ARGV[1], 'payload', job[7], 'committed', job[3])
    redis.call('PEXPIRE', KEYS[7], {DEAD_TTL_MS})
    return {{'poison'}}
  end
end
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
silent = silent .. '<' .. epoch .. '>'
redis.call('HSET', KEYS[1], 'owner', ARGV[3], 'lease', now + ARGV[4], 'silent', silent)
if not queued(job[9]) then enter(KEYS[1], ARGV[1]) end
depart(ARGV[1])
return {{'ok', epoch, tonumber(job[3]), job[7], tonumber(job[5]) - now}}
"""
)

# ARGV: request id, group, epoch, base, token count, chunk, lease ms, 1 if terminal
COMMIT: Final = Script(
    _NOW
    + _FINISH
    + _STALE
    + """
local job = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'committed')
if not job[1] then return 'gone' end
if job[1] ~= ARGV[3] then return stale() end
if job[2] ~= 'running' then return job[2] end
local base, count, committed = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(job[3])
if count > 0 and base + count <= committed then return 'duplicate' end
if base ~= committed then return 'gap' end
local last = base + count
redis.call('HSET', KEYS[1], 'committed', last, 'lease', now + ARGV[7], 'silent', '')
if ARGV[8] == '1' then
  finish('finished', last .. (count > 0 and '-1' or '-2'), ARGV[6])
else
  redis.call('XADD', KEYS[2], last .. '-1', 'c', ARGV[6])
  redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1]))
end
return 'ok'
"""
)

# ARGV: request id, group, epoch, lease ms
RENEW: Final = Script(
    _NOW
    + _STALE
    + """
local job = redis.call('HMGET', KEYS[1], 'epoch', 'state')
if not job[1] then return 'gone' end
if job[1] ~= ARGV[3] then return stale() end
if job[2] ~= 'running' then return job[2] end
redis.call('HSET', KEYS[1], 'lease', now + ARGV[4])
return 'ok'
"""
)

# ARGV: request id, group, epoch. Puts the job back at once, for a verifier that drains.
RELEASE: Final = Script(
    _STALE
    + """
local job = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'entry', 'lease')
if not job[1] then return 'gone' end
if job[1] ~= ARGV[3] then return stale() end
if job[2] ~= 'running' then return job[2] end
if job[4] == '0' then return 'duplicate' end
redis.call('XACK', KEYS[4], ARGV[2], job[3])
redis.call('XDEL', KEYS[4], job[3])
local entry = redis.call('XADD', KEYS[4], '*', 'r', ARGV[1])
redis.call('HSET', KEYS[1], 'lease', 0, 'silent', '', 'entry', entry)
return 'ok'
"""
)

# ARGV: request id, group, terminal chunk. A cancel may overtake its submit, which then must not begin.
CANCEL: Final = Script(
    _FINISH
    + f"""
local job = redis.call('HMGET', KEYS[1], 'state', 'committed')
if not job[2] then
  redis.call('HSET', KEYS[1], 'state', 'cancelled')
  redis.call('PEXPIRE', KEYS[1], {OVERTAKEN_TTL_MS})
  return 'gone'
end
if job[1] ~= 'running' then return job[1] end
finish('cancelled', job[2] .. '-2', ARGV[3])
return 'ok'
"""
)

# KEYS: lanes. Returns how many jobs no verifier has taken yet, and how many ms the oldest of them has waited.
QUEUE: Final = Script(
    """
local time = redis.call('TIME'); local now = time[1] * 1000000 + time[2]
local oldest = now
local waiting = redis.call('ZRANGE', KEYS[1], 0, -1)
for _, place in ipairs(waiting) do
  oldest = math.min(oldest, tonumber(string.match(place, '^%w* (%d+) ')))
end
return {#waiting, math.floor((now - oldest) / 1000)}
"""
)


def outcome(reply: Any) -> ScriptOutcome:
    """A script's reply, or the first element of it, as an `ScriptOutcome`."""
    value = reply[0] if isinstance(reply, list) else reply
    return ScriptOutcome(value.decode() if isinstance(value, bytes) else value)
