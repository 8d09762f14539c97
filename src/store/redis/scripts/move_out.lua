-- move_out: begins a page of messages that are moved to another topic: what waits, then what is dead.
--   KEYS[1] T:<group>:z  [2] T:<group>:h  [3] T:<group>:a  [4] T:<group>:dz  [5] T:<group>:dh  [6] T:<group>:m  [7] T:<group>:r
--   [8] T:<group>:f  [9] T:gen
--   ARGV[1] messages at most   ARGV[2] bytes at most   ARGV[3] time override, us, or ''   ARGV[4] the stream of the pages of a
--   partition that has none yet   ARGV[5] where they go, or '' to begin none
-- Returns {'OK', page, stream, where it goes, n times (id, 'w' waits or 'd' dead, score, charge or '', body or dead value)}; without
--   ids when there is nothing to move.
-- Nothing leaves the partition before `move_done`. A page is a list of ids in m. A message that waits is taken out of the
-- zset into the reservation 'm', so everybody finds it as in flight, and no owner reserves it; a dead one stays where it is. A repeat, or whoever comes after a
-- crash, is given the same page again, unless all on it has ended meanwhile. The number of a page is its time, and never goes back, so that the receiving end can tell a
-- page that it has from one that is new. Messages in flight, and dead ones that are being forwarded, are left alone.
local z, h, a, dz, dh, m = unpack(KEYS, 1, 6)
local most, bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local page, stream, to = string.match(redis.call('HGET', m, ' ') or '', '^(%d+) (%S+) (.*)$')
page, stream = tonumber(page or 0), stream or ARGV[4]
local taken = {}
local function add(id, kind, score, charge, value)
  local at = #taken
  taken[at + 1], taken[at + 2], taken[at + 3], taken[at + 4], taken[at + 5] = id, kind, score, charge, value
end
if redis.call('HLEN', m) > 1 then
  local entries = page_entries(m)
  for i = 1, #entries, 2 do
    local id, kind, score = entries[i], string.match(entries[i + 1], '^(%a) %d+ (%S+)$')
    local value = kind and redis.call('HGET', kind == 'w' and h or dh, id)
    if value then add(id, kind, score, kind == 'w' and redis.call('HGET', a, id) or '', value) end
  end
  if #taken > 0 then return repeated({'OK', string.format('%.0f', page), stream, to, unpack(taken)}) end
  local header = redis.call('HGET', m, ' ')
  redis.call('UNLINK', m)
  redis.call('HSET', m, ' ', header)
  redis.call('HDEL', KEYS[7], 'm')
end
if ARGV[5] == '' then return repeated({'OK', string.format('%.0f', page), stream, ''}) end
local function put(id, kind, version, score, charge, value)
  bytes = bytes - #value
  if bytes < 0 and #taken > 0 then return false end
  redis.call('HSET', m, id, kind .. ' ' .. string.format('%.0f', version) .. ' ' .. score)
  add(id, kind, score, charge, value)
  return true
end
local reserved = {}
local waiting = redis.call('ZRANGE', z, 0, most - 1, 'WITHSCORES')
for i = 1, #waiting, 2 do
  local id = waiting[i]
  local body = redis.call('HGET', h, id)
  if body then
    if not put(id, 'w', newest_version_of(body), time_of(waiting[i + 1]), redis.call('HGET', a, id) or '', body) then break end
    reserved[#reserved + 1] = id
  end
  redis.call('ZREM', z, id)
end
local dead = #waiting == 0 and redis.call('ZRANGE', dz, 0, most - 1, 'WITHSCORES') or {}
for i = 1, #dead, 2 do
  local id = dead[i]
  local value = redis.call('HEXISTS', KEYS[8], id) == 0 and redis.call('HGET', dh, id)
  if value and not put(id, 'd', dead_version(value), dead[i + 1], '', value) then break end
end
if #taken > 0 then
  page = string.format('%.0f', math.max(page + 1, (time_us(ARGV[3]))))
  redis.call('HSET', m, ' ', page .. ' ' .. stream .. ' ' .. ARGV[5])
  redis.call('HSET', KEYS[7], 'm', table.concat(reserved, ' '))
end
return counted({'OK', page, stream, ARGV[5], unpack(taken)})
