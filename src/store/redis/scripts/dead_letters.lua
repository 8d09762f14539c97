-- dead_letters: a page of dead messages, oldest death first.
--   KEYS[1] T:<group>:dz   KEYS[2] T:<group>:dh
--   ARGV[1] id to start after, or ''   ARGV[2] when it died, ms   ARGV[3] messages at most   ARGV[4] bytes at most
-- Returns {'OK', messages after this page, n times (id, died at ms, value)}. Changes nothing.
-- Equal times are ordered by id, so the page after a message begins at a definite place even when that message is gone.
local dz, id = KEYS[1], ARGV[1]
local limit, bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
local rank = 0
if id ~= '' then
  local own = redis.call('ZSCORE', dz, id)
  if own and tonumber(own) == tonumber(ARGV[2]) then
    rank = redis.call('ZRANK', dz, id) + 1
  else
    rank = redis.call('ZCOUNT', dz, '-inf', '(' .. ARGV[2])
    local to = redis.call('ZCOUNT', dz, '-inf', ARGV[2])
    while rank < to do
      local middle = math.floor((rank + to) / 2)
      if redis.call('ZRANGE', dz, middle, middle)[1] <= id then rank = middle + 1 else to = middle end
    end
  end
end
local found = redis.call('ZRANGE', dz, rank, rank + limit - 1, 'WITHSCORES')
local page = {'OK', 0}
for i = 1, #found, 2 do
  local value = redis.call('HGET', KEYS[2], found[i]) or ''
  bytes = bytes - #value
  if bytes < 0 and i > 1 then break end
  rank = rank + 1
  page[#page + 1] = found[i]
  page[#page + 1] = found[i + 1]
  page[#page + 1] = value
end
page[2] = redis.call('ZCARD', dz) - rank
return page
