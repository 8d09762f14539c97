-- unstage: forgets a page of dead letters that were forwarded, and gives those back that were not.
--   KEYS[1] T:<group>:dz  [2] T:<group>:dh  [3] T:<group>:f  [4] T:<group>:h   ARGV[1] page   ARGV[2] '1' if the stream was closed:
--   the next page begins another one   then ids to be given back
-- Returns {'OK', 1 if it was there}. A repeat, and a late copy when there is another page, do nothing.
-- An id that the group has again by now is kept: what is given back gets another one.
local header = redis.call('HGET', KEYS[3], ' ') or ''
if redis.call('HLEN', KEYS[3]) < 2 or string.match(header, '^%d+') ~= ARGV[1] then return {'OK', 0} end
for i = 3, #ARGV do
  local id = ARGV[i]
  local died_at, value = string.match(redis.call('HGET', KEYS[3], id) or '', '^(%S+) (.*)$')
  if value then
    if redis.call('HEXISTS', KEYS[2], id) == 1 or redis.call('HEXISTS', KEYS[4], id) == 1 then
      id = string.sub(id, 1, 100) .. '~' .. died_at .. '.' .. ARGV[1]
    end
    redis.call('ZADD', KEYS[1], died_at, id)
    redis.call('HSET', KEYS[2], id, value)
  end
end
redis.call('UNLINK', KEYS[3])
if ARGV[2] == '1' then header = ARGV[1] .. ' - ' end
redis.call('HSET', KEYS[3], ' ', header)
return {'OK', 1}
