-- waiting: a page of the messages in the zset, by the time at which they are tried next.
--   KEYS[1] T:<group>:z   KEYS[2] T:<group>:h   KEYS[3] T:<group>:a
--   ARGV[1] first time, ms   ARGV[2] first time behind, ms   ARGV[3] id to start after, or ''   ARGV[4] its time, ms
--   ARGV[5] messages at most   ARGV[6] bytes at most   ARGV[7] 'sizes', or nothing
-- Returns {'OK', 1 if there is more, id and time of the last one that was looked at, or '', n times (id, time, body, charge
--   or '')}, with sizes n times (id, time, bytes of the body). Changes nothing.
local z, id = KEYS[1], ARGV[3]
local limit, bytes, sizes = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local rank, sorted_rank = rank_of_first(z, 0, ARGV[1], id, ARGV[4]), nil
if redis.call('ZCOUNT', z, SORTED_FROM, '+inf') > 0 then sorted_rank = rank_of_first(z, SORTED, ARGV[1], id, ARGV[4]) end
local found = by_due(z, rank, sorted_rank, limit + 1)
local page = {'OK', 0, '', ''}
for i = 1, #found, 2 do
  if tonumber(found[i + 1]) >= tonumber(ARGV[2]) then return page end
  if i > 2 * limit or bytes <= 0 then
    page[2] = 1
    return page
  end
  page[3], page[4] = found[i], found[i + 1]
  local body = redis.call('HGET', KEYS[2], found[i])
  if body then
    bytes = bytes - #body
    page[#page + 1] = found[i]
    page[#page + 1] = found[i + 1]
    page[#page + 1] = sizes and #body or body
    if not sizes then page[#page + 1] = redis.call('HGET', KEYS[3], found[i]) or '' end
  end
end
return page
