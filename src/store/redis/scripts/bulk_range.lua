-- bulk_range: the messages of a partition that wait and are due in a window, the earliest first, and how many there are.
--   KEYS[1] T:<group>:z
--   ARGV[1] from, ms   ARGV[2] to, ms, not included   ARGV[3] id to start after, or ''   ARGV[4] when that is due, ms
--   ARGV[5] messages at most
-- Returns {'OK', messages in the window, n times (id, due ms)}. Changes nothing.
local z, to = KEYS[1], '(' .. ARGV[2]
local answer = {'OK', redis.call('ZCOUNT', z, ARGV[1], to)}
local first = redis.call('ZCOUNT', z, '-inf', '(' .. ARGV[1])
if ARGV[3] ~= '' then
  local score = redis.call('ZSCORE', z, ARGV[3])
  -- A place that has changed since: from the beginning of its millisecond.
  if score and math.floor(tonumber(score)) == tonumber(ARGV[4]) then
    first = redis.call('ZRANK', z, ARGV[3]) + 1
  else
    first = redis.call('ZCOUNT', z, '-inf', '(' .. ARGV[4])
  end
end
local last = math.min(first + tonumber(ARGV[5]), redis.call('ZCOUNT', z, '-inf', to)) - 1
if last >= first then
  local page = redis.call('ZRANGE', z, first, last, 'WITHSCORES')
  for i = 1, #page do answer[i + 2] = page[i] end
end
return answer
