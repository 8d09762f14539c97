-- move_done: forgets a page that was taken out of a partition and is placed elsewhere.
--   KEYS[1] T:<group>:m   ARGV[1] page
-- Returns {'OK', 1 if it was there}. A repeat, and a late copy when there is another page, do nothing.
local page = redis.call('HGET', KEYS[1], ' ')
if string.match(page or '', '^%d+') ~= ARGV[1] then return {'OK', 0} end
redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], ' ', page)
return {'OK', 1}
