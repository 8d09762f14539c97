-- release: gives a lease up.
--   KEYS[1] T:<group>:lease   KEYS[2] T:<group>:r   KEYS[3] T:wake
--   ARGV[1] member   ARGV[2] epoch   ARGV[3] line that nobody holds, without stamp   ARGV[4] time override, us, or ''
-- Returns {'OK', now us}. With another epoch in place nothing changes, so a repeat or a late copy does nothing.
local answer = string.format('%.0f', time_us(ARGV[4]))
local line = redis.call('HGET', KEYS[2], '@')
if line and string.match(line, '^[^/]*') == ARGV[2] then
  redis.call('HSET', KEYS[2], '@', ARGV[3] .. answer)
  if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[3], 'released')
  end
end
return {'OK', answer}
