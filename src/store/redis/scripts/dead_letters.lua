-- dead_letters: a page of dead messages by the time of their death.
--   KEYS[1] T:<group>:dz   KEYS[2] T:<group>:dh
--   ARGV[1] id to start after, or ''   ARGV[2] when it died, ms   ARGV[3] messages at most   ARGV[4] bytes at most
--   ARGV[5] 'oldest' or 'newest', which death comes first   ARGV[6] 'sizes', or nothing
-- Returns {'OK', messages after this page, n times (id, died at ms, value)}, with sizes n times (id, died at ms, bytes of the
--   value). Changes nothing.
-- Equal times are ordered by id, so the page after a message begins at a definite place even when that message is gone.
local dz, id = KEYS[1], ARGV[1]
local limit, bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
local newest, sizes = ARGV[5] == 'newest', ARGV[6]
-- How many are older than the first of the page, or with the newest first not newer than it.
local rank = newest and redis.call('ZCARD', dz) or 0
if id ~= '' then
  local own = redis.call('ZSCORE', dz, id)
  if own and tonumber(own) == tonumber(ARGV[2]) then
    rank = redis.call('ZRANK', dz, id) + (newest and 0 or 1)
  else
    rank = redis.call('ZCOUNT', dz, '-inf', '(' .. ARGV[2])
    local to = redis.call('ZCOUNT', dz, '-inf', ARGV[2])
    while rank < to do
      local middle = math.floor((rank + to) / 2)
      if redis.call('ZRANGE', dz, middle, middle)[1] <= id then rank = middle + 1 else to = middle end
    end
  end
end
local page = {'OK', newest and rank or redis.call('ZCARD', dz) - rank}
if page[2] <= 0 then return page end
local from, to = rank, rank + limit - 1
if newest then from, to = math.max(rank - limit, 0), rank - 1 end
local found = redis.call('ZRANGE', dz, from, to, 'WITHSCORES')
for n = 1, #found, 2 do
  local at = newest and #found - n or n
  local value = redis.call('HGET', KEYS[2], found[at]) or ''
  bytes = bytes - #value
  if bytes < 0 and n > 1 then break end
  page[2] = page[2] - 1
  page[#page + 1] = found[at]
  page[#page + 1] = found[at + 1]
  page[#page + 1] = sizes and #value or value
end
return page
