-- start: charges attempts before messages that may have been handed out before are handed out again.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:a   KEYS[3] T:<group>:h
--   ARGV[1..3] the call sequence   then (id, attempts), attempts absolute
-- Returns {'OK', owner line} or what the call sequence answers. A repeat does nothing.
if applied then return {'OK', line} end
for i = 4, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i]) == 1 then
    local due = string.match(redis.call('HGET', KEYS[2], ARGV[i]) or '', ' .*') or ''
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1] .. due)
  end
end
redis.call('HSET', KEYS[1], '@', line)
return {'OK', line}
