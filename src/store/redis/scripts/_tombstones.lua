-- T:gone, a zset: id -> version, us, of the last operation that set it again; `<id> <group> acked` -> version up to which it was
-- acked there, so that a repeated late ack finds it; `<id> <group>` -> version up to which it is over there for another reason: it
-- may be in another topic; ` <cron job>` -> version of its deletion. A log that comes later finds that it is older, though nothing may be there any more. It forgets what is
-- older than seven days, and the oldest past 100,000.
local function remember_version(gone, now_us, member, version)
  redis.call('ZADD', gone, 'GT', string.format('%.0f', version), member)
  redis.call('ZREMRANGEBYSCORE', gone, '-inf', string.format('%.0f', now_us - 604800000000))
  local excess = redis.call('ZCARD', gone) - 100000
  if excess > 0 then redis.call('ZREMRANGEBYRANK', gone, 0, math.min(excess, 17) - 1) end
  redis.call('PEXPIRE', gone, 604800000)
end
