-- beat: says that a member of a group lives, and answers which ones do.
--   KEYS[1] <prefix>:members:<topic>:<group>
--   ARGV[1] member   ARGV[2] ttl, ms   ARGV[3] channel for joins   ARGV[4] time override, us, or ''
-- Returns {'OK', now us, member...}. A repeat says it again.
local now_us = time_us(ARGV[4])
local now = math.floor(now_us / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
if redis.call('ZADD', KEYS[1], now, ARGV[1]) == 1 then redis.call('SPUBLISH', ARGV[3], 'joined') end
redis.call('PEXPIRE', KEYS[1], ARGV[2] * 2)
return {'OK', string.format('%.0f', now_us), unpack(redis.call('ZRANGE', KEYS[1], 0, 6999))}
