-- forward: stores dead letters of another topic for all groups of this one, all or none.
--   KEYS[1] T:gen   KEYS[2] T:c:<stream>   KEYS[3] T:x   KEYS[4] T:wake   KEYS[5] T:c:<stream>@<broker>
--   then for each group T:<group>:z, :h, :dh
--   ARGV[1] as in _history   ARGV[2] page   ARGV[3] bodies a partition may hold   ARGV[4] due, ms   ARGV[5] time override, us,
--   or ''   ARGV[6] valid until, ms   then n times (id, id if that one is taken, body)
-- Returns {'OK', indexes of those that have their other id, 1 if the page was stored before} or, with nothing changed, a refusal of _history, {'LATE'}
--   {'FULL'} {'CLOSED'}: the page was called back, and is never stored.
-- The page is remembered as a call is: a repeat, also one that comes when its messages were consumed, is answered as before,
-- and a late copy of an older page stores nothing. Each broker to which a page was answered has a memory too: pages of a stream
-- are in the journals of several brokers, which are restored in any order. An id that is held, dead or cancelled here is taken.
local now = math.floor(time_us(ARGV[5]) / 1000)
if now > tonumber(ARGV[6]) then return {'LATE'} end
if refusal and refusal[1] ~= 'BEHIND' then return refusal end
local last, answered = string.match(redis.call('GET', KEYS[2]) or '0', '^(%d+) ?(.*)$')
local renamed = {}
local function remember_broker()
  local before = tonumber(string.match(redis.call('GET', KEYS[5]) or '0', '^%d+'))
  redis.call('SET', KEYS[5], string.format('%.0f', math.max(before, tonumber(ARGV[2]))), 'PX', CALL_KEPT)
end
if tonumber(last) >= tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[2], CALL_KEPT)
  if tonumber(last) == tonumber(ARGV[2]) then
    for index in string.gmatch(answered, '%d+') do renamed[#renamed + 1] = tonumber(index) end
  end
  remember_broker()
  return repeated({'OK', renamed, 1})
end
if answered == 'closed' then return {'CLOSED'} end
local n = (#ARGV - 6) / 3
local zsets = {}
for g = 6, #KEYS, 3 do
  zsets[#zsets + 1] = KEYS[g]
  if redis.call('HLEN', KEYS[g + 1]) + n > tonumber(ARGV[3]) then return {'FULL'} end
end
local function is_taken(id)
  for g = 6, #KEYS, 3 do
    if redis.call('HEXISTS', KEYS[g + 1], id) == 1 or redis.call('HEXISTS', KEYS[g + 2], id) == 1 then return true end
  end
  return redis.call('ZSCORE', KEYS[3], id)
end
local due, earlier = tonumber(ARGV[4]), false
for _, z in ipairs(zsets) do
  local head = redis.call('ZRANGE', z, 0, 0, 'WITHSCORES')[2]
  earlier = earlier or not head or due < tonumber(head)
end
for i = 1, n do
  local id, spare, body = ARGV[3 * i + 4], ARGV[3 * i + 5], ARGV[3 * i + 6]
  if is_taken(id) then
    id = spare
    renamed[#renamed + 1] = i - 1
  end
  local score = place and place(zsets, now, due) or ARGV[4]
  for g = 6, #KEYS, 3 do
    redis.call('ZADD', KEYS[g], score, id)
    redis.call('HSET', KEYS[g + 1], id, body)
  end
end
if place then remember_places(now) end
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. table.concat(renamed, ','), 'PX', CALL_KEPT)
remember_broker()
if earlier then redis.call('SPUBLISH', KEYS[4], ARGV[4]) end
return counted({'OK', renamed, 0})
