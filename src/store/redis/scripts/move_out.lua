-- move_out: takes a page of messages out of a partition, to be moved to another topic: what waits, then what is dead.
--   KEYS[1] T:<group>:z  [2] T:<group>:h  [3] T:<group>:a  [4] T:<group>:dz  [5] T:<group>:dh  [6] T:<group>:m
--   ARGV[1] messages at most   ARGV[2] bytes at most   ARGV[3] time override, us, or ''   ARGV[4] the stream of the pages of a
--   partition that has none yet
-- Returns {'OK', page, stream, n times (id, 'w' waits or 'd' dead, score, charge or '', body or dead value)}.
-- A taken message stays in m until `move_done` says that it is elsewhere, so it is in one place all the while and no owner reserves
-- it. A repeat, or whoever comes after a crash, is given the same page again. The number of a page is its time, and never
-- goes back, so that the receiving end can tell a page that it has from one that is new. Messages in flight are left alone.
local m, most, bytes = KEYS[6], tonumber(ARGV[1]), tonumber(ARGV[2])
local page, stream = string.match(redis.call('HGET', m, ' ') or '', '^(%d+) (%S+)$')
page, stream = tonumber(page or 0), stream or ARGV[4]
local taken = {}
local function add(id, kind, score, charge, value)
  local at = #taken
  taken[at + 1], taken[at + 2], taken[at + 3], taken[at + 4], taken[at + 5] = id, kind, score, charge, value
end
if redis.call('HLEN', m) > 1 then
  local cursor, seen = '0', { [' '] = true }
  repeat
    local some = redis.call('HSCAN', m, cursor, 'COUNT', 250)
    cursor = some[1]
    for i = 1, #some[2], 2 do
      local id = some[2][i]
      if not seen[id] then
        seen[id] = true
        local kind, score, length, rest = string.match(some[2][i + 1], '^(%a) (%S+) (%d+) (.*)$')
        add(id, kind, score, string.sub(rest, 1, tonumber(length)), string.sub(rest, tonumber(length) + 1))
      end
    end
  until cursor == '0'
  return {'OK', string.format('%.0f', page), stream, unpack(taken)}
end
local function put(id, kind, score, charge, value)
  bytes = bytes - #value
  if bytes < 0 and #taken > 0 then return false end
  redis.call('HSET', m, id, kind .. ' ' .. score .. ' ' .. #charge .. ' ' .. charge .. value)
  add(id, kind, score, charge, value)
  return true
end
local waiting = redis.call('ZRANGE', KEYS[1], 0, most - 1, 'WITHSCORES')
for i = 1, #waiting, 2 do
  local id = waiting[i]
  local body = redis.call('HGET', KEYS[2], id)
  if body and not put(id, 'w', waiting[i + 1], redis.call('HGET', KEYS[3], id) or '', body) then break end
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
end
local dead = #waiting == 0 and redis.call('ZRANGE', KEYS[4], 0, most - 1, 'WITHSCORES') or {}
for i = 1, #dead, 2 do
  local id = dead[i]
  local value = redis.call('HGET', KEYS[5], id)
  if value and not put(id, 'd', dead[i + 1], '', value) then break end
  redis.call('ZREM', KEYS[4], id)
  redis.call('HDEL', KEYS[5], id)
end
if #taken > 0 then
  page = string.format('%.0f', math.max(page + 1, (time_us(ARGV[3]))))
  redis.call('HSET', m, ' ', page .. ' ' .. stream)
end
return {'OK', page, stream, unpack(taken)}
