-- stats: counts the messages of a partition, and what becomes due within some spans from now, in logarithmic time for each.
--   KEYS[1] T:<group>:z  [2] T:<group>:h  [3] T:<group>:dz  [4] T:<group>:lease
--   ARGV[1] time override, us, or ''   ARGV[2...] spans, ms, at most 500
-- Returns {'OK', now us, in the zset, of these due, bodies, dead, earliest due time ms or '', owner or '', due later than now
--   and within each span ...}. Changes nothing.
local now_us, now_text = time_us(ARGV[1])
local now = math.floor(now_us / 1000)
-- With an ordering a score has a fraction, which belongs to its millisecond. Sorted messages are due.
local function before(ms) return '(' .. string.format('%.0f', math.min(ms + 1, SORTED)) end
local scored, sorted = redis.call('ZCARD', KEYS[1]), redis.call('ZCOUNT', KEYS[1], SORTED_FROM, '+inf')
local head = redis.call('ZRANGE', KEYS[1], '0', '0', 'WITHSCORES')[2]
if sorted > 0 then
  local first = time_of(redis.call('ZRANGE', KEYS[1], scored - sorted, scored - sorted, 'WITHSCORES')[2])
  if sorted == scored or tonumber(first) < tonumber(head) then head = first end
end
local answer = {
  'OK', now_text, scored, redis.call('ZCOUNT', KEYS[1], '-inf', before(now)) + sorted,
  redis.call('HLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]), head or '', redis.call('GET', KEYS[4]) or ''
}
for span = 2, #ARGV do
  answer[span + 7] = redis.call('ZCOUNT', KEYS[1], string.format('%.0f', now + 1), before(now + ARGV[span]))
end
return answer
