-- repair: schedules again bodies that are in no place: neither in the zset nor in a reservation.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:z   KEYS[3] T:<group>:h
--   ARGV[1] epoch   ARGV[2] scan cursor, '0' at first   ARGV[3] time override, us, or ''
-- Returns {'OK', now us, messages, next cursor or '0'} or {'STALE', now us}.
-- Made after recovery and before the first reservation, so the only field of r is the owner line, and every body outside
-- the zset is an orphan. A repeat finds them in the zset.
local now_us = time_us(ARGV[3])
local answer = string.format('%.0f', now_us)
local line = redis.call('HGET', KEYS[1], '@')
if not line or string.match(line, '^[^/]*') ~= ARGV[1] or redis.call('HLEN', KEYS[1]) > 1 then return {'STALE', answer} end
local page = redis.call('HSCAN', KEYS[3], ARGV[2], 'COUNT', 250)
local moved = 0
for i = 1, #page[2], 2 do
  moved = moved + redis.call('ZADD', KEYS[2], 'NX', math.floor(now_us / 1000), page[2][i])
end
return {'OK', answer, moved, page[1]}
