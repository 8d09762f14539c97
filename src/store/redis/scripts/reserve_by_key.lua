-- reserve_by_key: takes sorted messages of some keys, and the due prefix of the zset behind them, into one reservation.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:z   KEYS[3] T:<group>:h   KEYS[4] T:<group>:a   KEYS[5] T:<group>:k
--   ARGV[1..3] the call sequence   ARGV[4] field of the reservation   ARGV[5] messages of the prefix at most
--   ARGV[6] bytes of all at most   ARGV[7] bodies to read at a time   then n times (messages of the key at most, key or '' for those
--   without a key)
-- Returns {'OK', owner line, score of the first in the zset or '', bodies not in the zset and in no page of a move, ids dropped, ids
--   with a blank between them, bodies, attempts, entries left of each key} or what the call sequence answers. `attempts` is empty when
--   none are charged.
-- A crash before or after changes nothing or leaves the ids in the reservation, where the next epoch's recovery finds them; they are
-- not sorted then. A repeat reads the bodies of that reservation again, and counts anew.
-- Entries whose message is elsewhere are dropped, some in each call: of a key that has more of them fewer messages come than it has.
local ENTRIES_LOOKED_AT = 2000
local z, h, k = KEYS[2], KEYS[3], KEYS[5]
local ids, bodies, count, dropped = {}, {}, 0, 0
local joined = ''
local chunk, bytes, limit = tonumber(ARGV[7]), 0, tonumber(ARGV[6])

-- Takes of these ids, which are out of the zset or leave it, those with a body, until the bytes are too many. Returns how many were
-- looked at.
local function take(some)
  local read = redis.call('HMGET', h, unpack(some))
  for i = 1, #some do
    local body = read[i]
    if body and bytes > 0 and bytes + #body > limit then
      bytes = limit
      return i - 1
    elseif body then
      bytes, count = bytes + #body, count + 1
      ids[count], bodies[count] = some[i], body
    else
      dropped = dropped + 1
    end
  end
  return #some
end

-- Looks at the next entries of a key: how many messages were taken, and how many entries are done with.
local function take_sorted(key, most)
  local low, high = range_of(key)
  local entries = redis.call('ZRANGE', k, low, high, 'BYLEX', 'LIMIT', 0, most)
  if #entries == 0 then return 0, 0 end
  local there, places = {}, {}
  for i = 1, #entries do there[i] = string.sub(entries[i], #key + 15) end
  local scores = redis.call('ZMSCORE', z, unpack(there))
  local sorted = {}
  for i = 1, #entries do
    if scores[i] and tonumber(scores[i]) == SORTED + string.sub(entries[i], #key + 2, #key + 14) then
      sorted[#sorted + 1], places[#sorted + 1] = there[i], i
    end
  end
  local before, done = count, #entries
  if #sorted > 0 then
    local taken = take(sorted)
    if taken < #sorted then done = places[taken + 1] - 1 end
    if taken > 0 then redis.call('ZREM', z, unpack(sorted, 1, taken)) end
  end
  if done > 0 then redis.call('ZREM', k, unpack(entries, 1, done)) end
  return count - before, done
end

if applied then
  joined = redis.call('HGET', KEYS[1], ARGV[4]) or ''
  for id in string.gmatch(joined, '%S+') do
    count = count + 1
    ids[count], bodies[count] = id, redis.call('HGET', h, id)
  end
else
  local looks = ENTRIES_LOOKED_AT
  for i = 8, #ARGV, 2 do
    local wanted, done = tonumber(ARGV[i]), 1
    while wanted > 0 and done > 0 and bytes < limit and looks > 0 do
      local taken
      taken, done = take_sorted(ARGV[i + 1], math.min(wanted, chunk, looks))
      wanted, looks = wanted - taken, looks - done
    end
  end
  local due = redis.call('ZRANGE', z, '-inf', string.sub('000' .. now_text, 1, -4), 'BYSCORE', 'LIMIT', '0', ARGV[5])
  local taken = 0
  while taken < #due and bytes < limit do
    taken = taken + take({unpack(due, taken + 1, math.min(taken + chunk, #due))})
  end
  if taken > 0 then redis.call('ZREMRANGEBYRANK', z, '0', taken - 1) end
  if count > 0 then
    joined = table.concat(ids, ' ')
    redis.call('HSET', KEYS[1], '@', line, ARGV[4], joined)
  else
    redis.call('HSET', KEYS[1], '@', line)
  end
end
local attempts = attempts_of(KEYS[4], ids)
local left = {}
for i = 9, #ARGV, 2 do left[#left + 1] = redis.call('ZLEXCOUNT', k, range_of(ARGV[i])) end
local head = redis.call('ZRANGE', z, '0', '0', 'WITHSCORES')
local on_its_way = redis.call('HEXISTS', KEYS[1], 'm') == 1 and moving(KEYS[1], z, h) or 0
local unsettled = math.max(0, redis.call('HLEN', h) - redis.call('ZCARD', z) - on_its_way)
return {'OK', line, head[2] or '', unsettled, dropped, joined, bodies, attempts, left}
