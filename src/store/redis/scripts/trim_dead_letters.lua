-- trim_dead_letters: drops a page of the dead messages that are past the bounds of their topic, oldest death first.
--   KEYS[1] T:<group>:dz  [2] T:<group>:dh  [3] T:<group>:m  [4] T:<group>:f
--   ARGV[1] drop what died before, ms, or ''   ARGV[2] keep so many of the others, or ''   ARGV[3] drop at most
-- Returns {'OK', dropped for their age, dropped because there were too many, 1 if there is more, died at ms of the oldest left or ''}.
-- While a page is on its way to another topic nothing is dropped. A repeat finds what is past the bounds then. Nobody has to own the partition: whoever calls it, the bounds are the same.
local dz, most = KEYS[1], tonumber(ARGV[3])
local aged, surplus = 0, 0
if ARGV[1] ~= '' then aged = redis.call('ZCOUNT', dz, '-inf', '(' .. ARGV[1]) end
if ARGV[2] ~= '' then surplus = math.max(0, redis.call('ZCARD', dz) - aged - tonumber(ARGV[2])) end
local more = aged + surplus > most and 1 or 0
aged = math.min(aged, most)
surplus = math.min(surplus, most - aged)
if redis.call('HLEN', KEYS[3]) > 1 or redis.call('HLEN', KEYS[4]) > 1 then aged, surplus, more = 0, 0, 0 end
if aged + surplus > 0 then
  local ids = redis.call('ZRANGE', dz, 0, aged + surplus - 1)
  redis.call('ZREM', dz, unpack(ids))
  redis.call('HDEL', KEYS[2], unpack(ids))
end
return {'OK', aged, surplus, more, redis.call('ZRANGE', dz, 0, 0, 'WITHSCORES')[2] or ''}
