-- repair: schedules again bodies that are in no place, neither in the zset nor in a reservation; then drops ids from the
-- zset that have no body.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:z   KEYS[3] T:<group>:h
--   ARGV[1] epoch   ARGV[2] 'h' or 'z' and a scan cursor, 'h0' at first   ARGV[3] time override, us, or ''
-- Returns {'OK', now us, messages, next cursor or ''} or {'STALE', now us}.
-- Made after recovery and before the first reservation, so the only field of r is the owner line, and every body outside
-- the zset is an orphan. A repeat finds them in the zset.
local now_us = time_us(ARGV[3])
local answer = string.format('%.0f', now_us)
local line = redis.call('HGET', KEYS[1], '@')
if not line or string.match(line, '^[^/]*') ~= ARGV[1] or redis.call('HLEN', KEYS[1]) > 1 then return {'STALE', answer} end
local moved, now, cursor = 0, math.floor(now_us / 1000), string.sub(ARGV[2], 2)
if string.sub(ARGV[2], 1, 1) == 'h' then
  local page = redis.call('HSCAN', KEYS[3], cursor, 'COUNT', 250)
  for i = 1, #page[2], 2 do moved = moved + redis.call('ZADD', KEYS[2], 'NX', now, page[2][i]) end
  return {'OK', answer, moved, page[1] == '0' and 'z0' or 'h' .. page[1]}
end
local page = redis.call('ZSCAN', KEYS[2], cursor, 'COUNT', 250)
for i = 1, #page[2], 2 do
  if redis.call('HEXISTS', KEYS[3], page[2][i]) == 0 then moved = moved + redis.call('ZREM', KEYS[2], page[2][i]) end
end
return {'OK', answer, moved, page[1] == '0' and '' or 'z' .. page[1]}
