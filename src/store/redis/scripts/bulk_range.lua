-- bulk_range: the messages of a partition that wait and are due in a window, the earliest first, and how many there are.
--   KEYS[1] T:<group>:z
--   ARGV[1] from, ms   ARGV[2] to, ms, not included   ARGV[3] id to start after, or ''   ARGV[4] when that is due, ms
--   ARGV[5] messages at most
-- Returns {'OK', messages in the window, n times (id, due ms)}. Changes nothing.
local z = KEYS[1]
local to = math.min(tonumber(ARGV[2]), SORTED)
local function count(base) return redis.call('ZCOUNT', z, score_of(base, ARGV[1]), '(' .. score_of(base, to)) end
local answer = {'OK', count(0)}
local rank, sorted_rank = rank_of_first(z, 0, ARGV[1], ARGV[3], ARGV[4]), nil
if redis.call('ZCOUNT', z, SORTED_FROM, '+inf') > 0 then
  answer[2] = answer[2] + count(SORTED)
  sorted_rank = rank_of_first(z, SORTED, ARGV[1], ARGV[3], ARGV[4])
end
local page = by_due(z, rank, sorted_rank, tonumber(ARGV[5]))
for i = 1, #page, 2 do
  if tonumber(page[i + 1]) >= to then break end
  answer[i + 2], answer[i + 3] = page[i], page[i + 1]
end
return answer
