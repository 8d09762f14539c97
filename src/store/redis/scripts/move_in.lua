-- move_in: puts the messages of a page that was taken from another topic into a partition of this one.
--   KEYS[1] T:gen   KEYS[2] T:moved   KEYS[3] T:wake   KEYS[4] T:<group>:z  [5] T:<group>:h  [6] T:<group>:a  [7] T:<group>:dz  [8] T:<group>:dh
--   KEYS[9] T:c:<stream>@<broker>   KEYS[10] T:<group>:n
--   ARGV[1] as in _history   ARGV[2] stream of the page   ARGV[3] page   ARGV[4] bodies a partition may hold
--   then n times (id, 'w' or 'd', score, charge or '', body or dead value)
-- Returns {'OK', 1 if the page was placed before, ids that were there already} or, with nothing changed, a refusal of _history, {'FULL'} {'CLOSED'}: the
--   page was called back, or ended long ago.
-- The page is remembered beside its messages: a repeat, also one that comes when they were long consumed, and a late copy of
-- an older page find that it was placed, and place nothing. Each broker to which a page was answered has a memory of it, as of a
-- call: pages of a stream are in the journals of several brokers, which are restored in any order.
if refusal and refusal[1] ~= 'BEHIND' then return refusal end
local function remember_broker()
  local before = tonumber(string.match(redis.call('GET', KEYS[9]) or '0', '^%d+'))
  redis.call('SET', KEYS[9], string.format('%.0f', math.max(before, tonumber(ARGV[3]))), 'PX', CALL_KEPT)
end
local last, closed = string.match(redis.call('HGET', KEYS[2], ARGV[2]) or '0', '^(%d+) ?(.*)$')
if tonumber(last) > tonumber(ARGV[3]) or tonumber(last) == tonumber(ARGV[3]) and closed ~= '' then return {'CLOSED'} end
if tonumber(last) == tonumber(ARGV[3]) then
  remember_broker()
  return repeated({'OK', 1, {}})
end
if redis.call('HLEN', KEYS[5]) + (#ARGV - 4) / 5 > tonumber(ARGV[4]) then return {'FULL'} end
local head = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]
local there, earliest = {}, nil
for i = 5, #ARGV, 5 do
  local id, score, charge, value = ARGV[i], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  if redis.call('HEXISTS', KEYS[5], id) == 1 or redis.call('HEXISTS', KEYS[8], id) == 1 then
    there[#there + 1] = id
  elseif ARGV[i + 1] == 'd' then
    redis.call('ZADD', KEYS[7], score, id)
    redis.call('HSET', KEYS[8], id, value)
  else
    redis.call('ZADD', KEYS[4], score, id)
    redis.call('HSET', KEYS[5], id, value)
    -- It has a successor; _successor.lua has the form.
    if (string.byte(value, 14) or 0) >= 128 then redis.call('ZADD', KEYS[10], math.floor(tonumber(ARGV[3]) / 1000), id) end
    if charge ~= '' then redis.call('HSET', KEYS[6], id, charge) end
    if not earliest or tonumber(score) < tonumber(earliest) then earliest = score end
  end
end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
remember_broker()
if earliest and (not head or tonumber(earliest) < tonumber(head)) then
  redis.call('SPUBLISH', KEYS[3], string.format('%.0f', math.floor(tonumber(earliest))))
end
return counted({'OK', 0, there})
