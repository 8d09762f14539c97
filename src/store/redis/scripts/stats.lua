-- stats: counts the messages of a partition, and what becomes due within some spans from now, in logarithmic time for each.
--   KEYS[1] T:<group>:z  [2] T:<group>:h  [3] T:<group>:dz  [4] T:<group>:lease
--   ARGV[1] time override, us, or ''   ARGV[2...] spans, ms, at most 500
-- Returns {'OK', now us, in the zset, of these due, bodies, dead, earliest due time ms or '', owner or '', due later than now
--   and within each span ...}. Changes nothing.
local now_us, now_text = time_us(ARGV[1])
local now = math.floor(now_us / 1000)
-- With an ordering a score has a fraction, which belongs to its millisecond.
local function before(ms) return '(' .. string.format('%.0f', ms + 1) end
local head = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')
local answer = {
  'OK', now_text, redis.call('ZCARD', KEYS[1]), redis.call('ZCOUNT', KEYS[1], '-inf', before(now)),
  redis.call('HLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]), head[2] or '', redis.call('GET', KEYS[4]) or ''
}
for span = 2, #ARGV do
  answer[span + 7] = redis.call('ZCOUNT', KEYS[1], string.format('%.0f', now + 1), before(now + ARGV[span]))
end
return answer
