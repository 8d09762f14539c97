-- unstage: ends a page of dead letters: those that were forwarded leave the partition, the others stay.
--   KEYS[1] T:<group>:dz  [2] T:<group>:dh  [3] T:<group>:f  [4] T:gen   ARGV[1] page   ARGV[2] '1' if the stream was closed:
--   the next page begins another one   then ids that were not forwarded
-- Returns {'OK', 1 if it was there}. A repeat, and a late copy when there is another page, do nothing.
-- One that died again meanwhile, with a later version, stays.
local f = KEYS[3]
local header = redis.call('HGET', f, ' ') or ''
if redis.call('HLEN', f) < 2 or string.match(header, '^%d+') ~= ARGV[1] then return repeated({'OK', 0}) end
local stays = {}
for i = 3, #ARGV do stays[ARGV[i]] = true end
local entries = page_entries(f)
for i = 1, #entries, 2 do
  local id = entries[i]
  local value = not stays[id] and redis.call('HGET', KEYS[2], id)
  if value and dead_version(value) == tonumber(entries[i + 1]) then
    redis.call('ZREM', KEYS[1], id)
    redis.call('HDEL', KEYS[2], id)
  end
end
redis.call('UNLINK', f)
if ARGV[2] == '1' then header = ARGV[1] .. ' - ' end
redis.call('HSET', f, ' ', header)
return counted({'OK', 1})
