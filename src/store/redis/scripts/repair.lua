-- repair: makes ids and bodies agree again: a body in no place is scheduled, an id without a body is dropped.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:z   KEYS[3] T:<group>:h   KEYS[4] T:<group>:a
--   ARGV[1] epoch   ARGV[2] cursor, '0' at first   ARGV[3] time override, us, or ''
-- Returns {'OK', now us, repaired, next cursor or '0'} or {'STALE', now us}.
-- Made after recovery and before the first reservation, so the only fields of r are the owner line and a page of a move, and every
-- other body outside the zset is an orphan. It is due when it was, never earlier. First the hash is scanned, then the zset, whose cursors
-- begin with 'z'. A repeat finds them in the zset, or gone.
local now_us, answer = time_us(ARGV[3])
local line = redis.call('HGET', KEYS[1], '@')
if not line or string.match(line, '^[^/]*') ~= ARGV[1] 
  or redis.call('HLEN', KEYS[1]) > 1 + redis.call('HEXISTS', KEYS[1], 'm') then return {'STALE', answer} end
local now = math.floor(now_us / 1000)
local in_zset, cursor = string.match(ARGV[2], '^(z?)(%d+)$')
local repaired = 0

if in_zset == 'z' then
  local page = redis.call('ZSCAN', KEYS[2], cursor, 'COUNT', 250)
  for i = 1, #page[2], 2 do
    if redis.call('HEXISTS', KEYS[3], page[2][i]) == 0 then
      repaired = repaired + redis.call('ZREM', KEYS[2], page[2][i])
    end
  end
  return {'OK', answer, repaired, page[1] == '0' and '0' or 'z' .. page[1]}
end

local page, on_its_way = redis.call('HSCAN', KEYS[3], cursor, 'COUNT', 250), moving_ids(KEYS[1])
for i = 1, #page[2], 2 do
  local id, body = page[2][i], page[2][i + 1]
  if not on_its_way[id] and not redis.call('ZSCORE', KEYS[2], id) then
    local due = string.match(redis.call('HGET', KEYS[4], id) or '', '^%d+ (%d+)')
    due = tonumber(due) or (#body >= 6 and struct.unpack('>I6', body)) or now
    redis.call('ZADD', KEYS[2], string.format('%.0f', math.max(now, due)), id)
    repaired = repaired + 1
  end
end
return {'OK', answer, repaired, page[1] == '0' and 'z0' or page[1]}
