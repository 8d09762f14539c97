-- settle: applies an owner's decisions about reserved messages, all or none.
--   KEYS[1] T:<group>:r  [2] T:<group>:z  [3] T:<group>:h  [4] T:<group>:a  [5] T:<group>:dz  [6] T:<group>:dh
--   [7] T:<group>:n   [8] T:seen, only with a dedup window   only with sorted messages or paused keys then T:<group>:k, T:<group>:p
--   and behind all T:gen
--   ARGV[1..3] the call sequence   ARGV[4] dedup window, ms
--   then six blocks, each with its number of values in front: acked (id) · scheduled again (ms, id)
--   · charged (id, attempts and due ms, line of the history or '') · buried (id, dead record, line of the history or '')
--   · reservations that remain (field, ids) · reservations with nothing left (field)
--   and behind them, only with sorted messages or paused keys, two more: sorted (score, id, entry of T:<group>:k) · paused (ms, key)
-- Returns {'OK', owner line, count, '1' if a message has taken the place of another one} or what the call sequence answers. A repeat
-- does not say the last one.
-- A body leaves the hash only here, and only through the call sequence, so an old epoch removes nothing. A repeat does nothing.
-- The successor of a message that ends takes its place; a dead one has another id then.
  parts = parts_of
end
if applied then return repeated({'OK', line}) end
local at = 5
local function block()
  local from, to = at + 1, at + tonumber(ARGV[at])
  at = to + 1
  return from, to
end
local function call(command, key, from, to)
  if to >= from then redis.call(command, key, unpack(ARGV, from, to)) end
end
local now = math.floor(now_us / 1000)
local is_succeeded = false
local take_place = has_successors and function(id, successor)
  redis.call('HSET', KEYS[3], id, successor)
  redis.call('ZADD', KEYS[2], 'NX', struct.unpack('>I6', successor), id)
  is_succeeded = true
end

local from, to = block()
local heirs = has_successors and {}
for i = from, has_successors and to or 0 do
  local body = redis.call('ZREM', KEYS[7], ARGV[i]) == 1 and redis.call('HGET', KEYS[3], ARGV[i])
  local _, successor = parts(body or '')
  if successor then heirs[ARGV[i]] = successor end
end
call('HDEL', KEYS[3], from, to)
if charges then call('HDEL', KEYS[4], from, to) end
for i = from, has_successors and to or 0 do
  if heirs[ARGV[i]] then take_place(ARGV[i], heirs[ARGV[i]]) end
end
local window = tonumber(ARGV[4])
if window > 0 then
  local seen = KEYS[8]
  for i = from, to do redis.call('ZADD', seen, now + window, ARGV[i]) end
  -- More than were added, so that it shrinks.
  local old = redis.call('ZRANGE', seen, '-inf', now, 'BYSCORE', 'LIMIT', 0, to - from + 17)
  if #old > 0 then redis.call('ZREM', seen, unpack(old)) end
end

-- A restore may have removed the body meanwhile, or placed it where a later operation wants it.
local places, bodiless = {}, {}
from, to = block()
for i = from, to, 2 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i + 1]) == 1 then
    places[#places + 1], places[#places + 2] = ARGV[i], ARGV[i + 1]
  else
    bodiless[ARGV[i + 1]] = true
  end
end
if #places > 0 then redis.call('ZADD', KEYS[2], 'NX', unpack(places)) end
local function history(id, failure)
  return history_with(charges and redis.call('HGET', KEYS[4], id) or '', failure)
end

from, to = block()
for i = from, to, 3 do
  if not bodiless[ARGV[i]] then
    local lines = history(ARGV[i], ARGV[i + 2])
    redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1] .. (lines == '' and '' or ' ' .. lines))
  end
end

from, to = block()
for i = from, to, 3 do
  local id = ARGV[i]
  local body = redis.call('HGET', KEYS[3], id)
  if body then
    local record, dead_id, successor = ARGV[i + 1] .. history(id, ARGV[i + 2]), id, nil
    if has_successors and redis.call('ZREM', KEYS[7], id) == 1 then body, successor, dead_id = parts(body) end
    redis.call('HSET', KEYS[6], dead_id or id, struct.pack('>I4', #record) .. record .. body)
    redis.call('ZADD', KEYS[5], now, dead_id or id)
    redis.call('HDEL', KEYS[3], id)
    redis.call('HDEL', KEYS[4], id)
    if successor then take_place(id, successor) end
  end
end

from, to = block()
call('HSET', KEYS[1], from, to)
from, to = block()
call('HDEL', KEYS[1], from, to)

if ARGV[at] then
  local k, p = KEYS[#KEYS - 2], KEYS[#KEYS - 1]
  from, to = block()
  for i = from, to, 3 do
    local score, id, entry = unpack(ARGV, i, i + 2)
    if redis.call('HEXISTS', KEYS[3], id) == 1 and redis.call('ZADD', KEYS[2], 'NX', score, id) == 1 then
      redis.call('ZADD', k, '0', entry)
    end
  end
  from, to = block()
  if to >= from then
    redis.call('ZREMRANGEBYSCORE', p, '-inf', now)
    redis.call('ZADD', p, 'GT', unpack(ARGV, from, to))
  end
end
redis.call('HSET', KEYS[1], '@', line)
local answers = counted({'OK', line})
if is_succeeded then answers[#answers + 1] = '1' end
return answers
