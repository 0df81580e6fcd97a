"""Makes the keys of a model agree again with the hashes of its jobs, whichever one of these keys Redis lost, or the
admitted ids together with the shares.

A job's hash is the truth. The job stream, the lanes, the shares and the admitted ids are copies of what it says; each
can be lost on its own, by an operator's DEL or XTRIM or by a restored backup. Without them a job that waits would wait
until its deadline, and so would all jobs behind it in its lane.
"""

from typing import Final

from shared.wire import keys
from shared.wire.commands import Redis
from shared.wire.scripts import LANES, STREAM_TTL_MS, Script, names

# Finds the live jobs by any of the keys that list them. A claimed job (epoch above 0) has left its lane; one that waits
# is in it, and `advance` queues the first of each lane. Keys of other requests cannot be declared. Nobody would read an
# entry that was delivered and is not pending: it goes, and its job gets a new one if it still needs one. ARGV: group.
MEND: Final = Script(
    LANES
    + f"""
local ids, places, callers = {{}}, {{}}, {{}}
local function list(id)
  if not places[id] then ids[#ids + 1], places[id] = id, '' end
end
local function wake(caller)
  if not callers[caller] then callers[#callers + 1], callers[caller] = caller, true end
end
local delivered
for _, group in ipairs(redis.call('EXISTS', KEYS[4]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[4]) or {{}}) do
  local facts = {{}}
  for index = 1, #group, 2 do facts[group[index]] = group[index + 1] end
  if facts['name'] == ARGV[1] then delivered = facts['last-delivered-id'] end
end
local function later(one, other)
  local ms, place = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_place = string.match(other, '^(%d+)-(%d+)$')
  if ms == other_ms then return tonumber(place) > tonumber(other_place) end
  return tonumber(ms) > tonumber(other_ms)
end
local function acknowledged(entry)
  return delivered and not later(entry, delivered)
    and #redis.call('XPENDING', KEYS[4], ARGV[1], entry, entry, 1) == 0
end
for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do list(id) end
for _, entry in ipairs(redis.call('XRANGE', KEYS[4], '-', '+')) do
  if entry[2][1] == 'r' then list(entry[2][2]) end
  if acknowledged(entry[1]) then redis.call('XDEL', KEYS[4], entry[1]) end
end
for _, id in ipairs(redis.call('HKEYS', KEYS[6])) do list(id) end
for _, first in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
  local caller, id = string.match(first, '^(%w*) %d+ (.*)$')
  list(id)
  places[id] = first
  wake(caller)
end
for _, id in ipairs(ids) do
  local key = string.format('{keys.job("%s")}', id)
  local job = redis.call('HMGET', key, 'state', 'epoch', 'entry', 'share', 'deadline')
  if job[1] ~= 'running' then
    leave(id)
    redis.call('ZREM', KEYS[5], places[id])
  elseif job[4] then  -- else an earlier release submitted it
    local own, caller = place(id, job[4])
    redis.call('ZADD', KEYS[3], job[5], id)
    redis.call('HSET', KEYS[6], id, job[4])
    if job[2] == '0' then
      redis.call('ZADD', KEYS[5], 0, own)
    else
      redis.call('ZREM', KEYS[5], own)
      if not queued(job[3]) then enter(key, id) end
    end
    wake(caller)
  end
end
for _, caller in ipairs(callers) do advance(caller) end
for index = 3, 6 do redis.call('PEXPIRE', KEYS[index], {STREAM_TTL_MS}) end
return #ids
"""
)


async def mend(redis: Redis, model: str) -> None:
    """Do so for this model. Changes nothing if nothing was lost. Raises redis-py's errors."""
    await MEND.run(redis, names("", model), [keys.GROUP])
