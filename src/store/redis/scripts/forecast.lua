-- forecast: counts how many messages of a partition become due in each of some equal spans, in logarithmic time for each.
--   KEYS[1] T:<group>:z   ARGV[1] from, ms   ARGV[2] length of a span, ms   ARGV[3] spans, at most 500
-- Returns {'OK', due up to from, due in each span (its end included, its beginning not) ..., due later}. Changes nothing.
-- Sorted messages are due.
local from, step, spans = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local function ms(span) return string.format('%.0f', math.min(from + span * step, SORTED - 1)) end
local answer = {'OK', redis.call('ZCOUNT', KEYS[1], '-inf', ms(0)) + redis.call('ZCOUNT', KEYS[1], SORTED_FROM, '+inf')}
for span = 1, spans do
  answer[span + 2] = redis.call('ZCOUNT', KEYS[1], '(' .. ms(span - 1), ms(span))
end
answer[spans + 3] = redis.call('ZCOUNT', KEYS[1], '(' .. ms(spans), '(' .. SORTED_FROM)
return answer
