-- start: charges attempts before messages that may have been handed out before are handed out again.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:a
--   ARGV[1..3] the chain   then (id, attempts), attempts absolute
-- Returns {'OK', owner line} or what the chain answers. A repeat does nothing.
if applied then return {'OK', line} end
redis.call('HSET', KEYS[2], unpack(ARGV, 4))
redis.call('HSET', KEYS[1], '@', line)
return {'OK', line}
