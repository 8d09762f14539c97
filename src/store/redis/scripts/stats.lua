-- stats: counts the messages of a pair, in logarithmic time.
--   KEYS[1] T:<group>:z  [2] T:<group>:h  [3] T:<group>:dz  [4] T:<group>:lease   ARGV[1] time override, us, or ''
-- Returns {'OK', now us, in the zset, of these due, bodies, dead, earliest due time ms or '', owner or ''}. Changes nothing.
local now_us = time_us(ARGV[1])
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {
  'OK', string.format('%.0f', now_us), redis.call('ZCARD', KEYS[1]),
  redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. string.format('%.0f', math.floor(now_us / 1000) + 1)), redis.call('HLEN', KEYS[2]),
  redis.call('ZCARD', KEYS[3]), head[2] or '', redis.call('GET', KEYS[4]) or ''
}
