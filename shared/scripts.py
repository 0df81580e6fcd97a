"""The durable plane's state machine as Lua scripts behind typed functions with typed outcomes.

Each script is atomic and idempotent: sending it again after a lost reply changes nothing more. Time is Redis's own,
so two hosts' clocks are never compared. All keys of a script are declared, for ACLs; they lie in different cluster
slots, so Redis Cluster is not supported.

A job's `state` is `running`, `cancelled` or `finished`; its `epoch` counts claims and fences zombies.
"""

import hashlib
from enum import StrEnum
from typing import Any, Final

from redis.exceptions import NoScriptError

from shared import keys
from shared.commands import Pipeline, Redis

STREAM_TTL_MS: Final = 24 * 3600 * 1000  # idle model streams vanish after a day; every submit renews it
ENDED_TTL_MS: Final = 600 * 1000  # an ended log stays readable for resumption
MAX_ATTEMPTS: Final = 3  # claims without one commit before a job counts as poison


class Outcome(StrEnum):
    """What a script did, or why it refused."""

    OK = "ok"
    DUPLICATE = "duplicate"  # this exact change was made before; as good as ok
    FULL = "full"  # admission refused
    GONE = "gone"  # the job does not exist or has expired
    STALE = "stale"  # another verifier claimed it since
    HELD = "held"  # its lease is alive
    GAP = "gap"  # base is beyond the log: Redis lost commits, or a bug; stop loudly
    CANCELLED = "cancelled"
    FINISHED = "finished"
    DEADLINE = "deadline"
    POISON = "poison"


_NOW = "local time = redis.call('TIME'); local now = time[1] * 1000 + math.floor(time[2] / 1000)\n"

# KEYS of `finish`: job, log, admitted, jobs. Ends a job once, in whatever script decides that it ends.
_FINISH = """
local function finish(state, entry_id, payload, ended_ttl)
  redis.call('XADD', KEYS[2], entry_id, 'c', payload)
  redis.call('HSET', KEYS[1], 'state', state)
  redis.call('PEXPIRE', KEYS[1], ended_ttl)
  redis.call('PEXPIRE', KEYS[2], ended_ttl)
  redis.call('ZREM', KEYS[3], ARGV[1])
  local entry = redis.call('HGET', KEYS[1], 'entry')
  redis.call('XACK', KEYS[4], ARGV[2], entry)
  redis.call('XDEL', KEYS[4], entry)
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

    def queue(self, pipeline: Pipeline, names: list[str], arguments: list[Any]) -> None:
        """Add a call to a pipeline. The caller loads the script and repeats if the server answers NOSCRIPT."""
        pipeline.evalsha(self.digest, len(names), *names, *arguments)


def names(request_id: str, model: str) -> list[str]:
    """The four keys that every script of a request takes, in order."""
    return [keys.job(request_id), keys.log(request_id), keys.admitted(model), keys.jobs(model)]


# ARGV: request id, group, payload, limit, timeout ms
SUBMIT: Final = Script(
    _NOW
    + f"""
if redis.call('EXISTS', KEYS[1]) == 1 then return 'duplicate' end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[4]) then return 'full' end
local deadline = now + ARGV[5]
redis.call('ZADD', KEYS[3], deadline, ARGV[1])
local entry = redis.call('XADD', KEYS[4], '*', 'r', ARGV[1])
redis.call('HSET', KEYS[1], 'payload', ARGV[3], 'epoch', 0, 'committed', 0, 'lease', 0, 'attempts', 0,
  'state', 'running', 'deadline', deadline, 'entry', entry)
redis.call('PEXPIRE', KEYS[1], ARGV[5] + {ENDED_TTL_MS})
redis.call('PEXPIRE', KEYS[3], {STREAM_TTL_MS})
redis.call('PEXPIRE', KEYS[4], {STREAM_TTL_MS})
return 'ok'
"""
)

# ARGV: request id, group, owner, lease ms, chunk for a passed deadline, chunk for a poison job
CLAIM: Final = Script(
    _NOW
    + _FINISH
    + f"""
local job = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'committed', 'lease', 'deadline', 'attempts', 'payload')
if not job[1] then return {{'gone'}} end
if job[2] ~= 'running' then return {{'finished'}} end
if now >= tonumber(job[5]) then
  finish('finished', job[3] .. '-2', ARGV[5], {ENDED_TTL_MS})
  return {{'deadline'}}
end
if tonumber(job[4]) > now then return {{'held'}} end
if tonumber(job[6]) >= {MAX_ATTEMPTS} then
  finish('finished', job[3] .. '-2', ARGV[6], {ENDED_TTL_MS})
  return {{'poison'}}
end
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HINCRBY', KEYS[1], 'attempts', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[3], 'lease', now + ARGV[4])
return {{'ok', job[1] + 1, tonumber(job[3]), job[7], tonumber(job[5]) - now}}
"""
)

# ARGV: request id, group, epoch, base, token count, chunk, lease ms, 1 if terminal
COMMIT: Final = Script(
    _NOW
    + _FINISH
    + f"""
local job = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'committed')
if not job[1] then return 'gone' end
if job[1] ~= ARGV[3] then return 'stale' end
if job[2] ~= 'running' then return job[2] end
local base, count, committed = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(job[3])
if count > 0 and base + count <= committed then return 'duplicate' end
if base ~= committed then return 'gap' end
local last = base + count
redis.call('HSET', KEYS[1], 'committed', last, 'lease', now + ARGV[7], 'attempts', 0)
if ARGV[8] == '1' then
  finish('finished', last .. (count > 0 and '-1' or '-2'), ARGV[6], {ENDED_TTL_MS})
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
    + """
local job = redis.call('HMGET', KEYS[1], 'epoch', 'state')
if not job[1] then return 'gone' end
if job[1] ~= ARGV[3] then return 'stale' end
if job[2] ~= 'running' then return job[2] end
redis.call('HSET', KEYS[1], 'lease', now + ARGV[4])
return 'ok'
"""
)

# ARGV: request id, group, epoch. Puts the job back at once, for a verifier that drains.
RELEASE: Final = Script(
    """
local job = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'entry', 'lease')
if not job[1] then return 'gone' end
if job[1] ~= ARGV[3] then return 'stale' end
if job[2] ~= 'running' then return job[2] end
if job[4] == '0' then return 'duplicate' end
redis.call('XACK', KEYS[4], ARGV[2], job[3])
redis.call('XDEL', KEYS[4], job[3])
local entry = redis.call('XADD', KEYS[4], '*', 'r', ARGV[1])
redis.call('HSET', KEYS[1], 'lease', 0, 'attempts', 0, 'entry', entry)
return 'ok'
"""
)

# ARGV: request id, group, terminal chunk
CANCEL: Final = Script(
    _FINISH
    + f"""
local job = redis.call('HMGET', KEYS[1], 'state', 'committed')
if not job[1] then return 'gone' end
if job[1] ~= 'running' then return job[1] end
finish('cancelled', job[2] .. '-2', ARGV[3], {ENDED_TTL_MS})
return 'ok'
"""
)

# KEYS: jobs. ARGV: group. How many jobs no verifier was given yet, and for how many ms the first of them has waited.
QUEUE: Final = Script(
    _NOW
    + """
local length = redis.call('XLEN', KEYS[1])
if length == 0 then return {0, 0} end
local last, pending = '0-0', 0
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local fields = {}
  for at = 1, #group, 2 do fields[group[at]] = group[at + 1] end
  if fields['name'] == ARGV[1] then last, pending = fields['last-delivered-id'], fields['pending'] end
end
local first = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1)[1]
if not first then return {0, 0} end
return {length - pending, math.max(0, now - tonumber(string.match(first[1], '^%d+')))}
"""
)


def outcome(reply: Any) -> Outcome:
    """A script's reply, or the first element of it, as an `Outcome`."""
    value = reply[0] if isinstance(reply, list) else reply
    return Outcome(value.decode() if isinstance(value, bytes) else value)
