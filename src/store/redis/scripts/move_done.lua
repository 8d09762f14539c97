-- move_done: ends a page of a move: what is in the other topic leaves the partition, what is not is given back.
--   KEYS[1] T:<group>:z  [2] T:<group>:h  [3] T:<group>:a  [4] T:<group>:dz  [5] T:<group>:dh  [6] T:<group>:m  [7] T:<group>:r
--   [8] T:wake  [9] T:gen   ARGV[1] page   then ids to be given back
-- Returns {'OK', 1 if the page was there}. A repeat, and a late copy when there is another page, do nothing.
-- A message that a restore scheduled again, or set to a later version, while its page was on its way stays here.
local z, h, a, dz, dh, m = unpack(KEYS, 1, 6)
local header = redis.call('HGET', m, ' ') or ''
if redis.call('HLEN', m) < 2 or string.match(header, '^%d+') ~= ARGV[1] then return repeated({'OK', 0}) end
local back, head = {}, nil
for i = 2, #ARGV do back[ARGV[i]] = true end
local entries = page_entries(m)
for i = 1, #entries, 2 do
  local id, kind, version, score = entries[i], string.match(entries[i + 1], '^(%a) (%d+) (%S+)$')
  if kind == 'w' and not redis.call('ZSCORE', z, id) then
    local body = redis.call('HGET', h, id)
    if body and newest_version_of(body) == tonumber(version) then
      if back[id] then
        redis.call('ZADD', z, score, id)
        if not head or tonumber(score) < tonumber(head) then head = score end
      else
        redis.call('HDEL', h, id)
        redis.call('HDEL', a, id)
      end
    end
  elseif kind == 'd' and not back[id] then
    local value = redis.call('HGET', dh, id)
    if value and dead_version(value) == tonumber(version) then
      redis.call('ZREM', dz, id)
      redis.call('HDEL', dh, id)
    end
  end
end
redis.call('UNLINK', m)
redis.call('HSET', m, ' ', header)
redis.call('HDEL', KEYS[7], 'm')
if head then redis.call('SPUBLISH', KEYS[8], string.format('%.0f', math.floor(tonumber(head)))) end
return counted({'OK', 1})
