-- publish_settings: shows a descriptor to a partition, which is made by that; an older one never replaces a newer one.
--   KEYS[1] T:gen   KEYS[2] T:wake   ARGV[1] as in _history
--   ARGV[2] descriptor   ARGV[3] ms to keep it, or '' indefinitely   ARGV[4] 1 to announce here that the topic changed
--   ARGV[5] four characters by chance   ARGV[6] time override, us, or ''   ARGV[7] process of Redis, 12 characters
-- Returns {'OK', 1 if it is in place now, 0 if a newer one is, history, count} or a refusal of _history. A repeat does the same.
if refusal and refusal[1] == 'ANOTHER' then return refusal end
local history, count = string.sub(there, 18, 49), string.sub(there, 51)
if refusal and refusal[1] == 'STALE' then return {'OK', 0, history, count} end
if there == '' then history = history_of(ARGV[7], ARGV[6], ARGV[5]) end
count = string.format('%016.0f', (tonumber(count) or 0) + 1)
local text = string.sub(ARGV[1], 1, 16) .. ' ' .. history .. ' ' .. count .. ' ' .. ARGV[2]
if ARGV[3] == '' then
  redis.call('SET', KEYS[1], text)
else
  redis.call('SET', KEYS[1], text, 'PX', ARGV[3])
end
if ARGV[4] == '1' and string.sub(there, 1, 16) ~= string.sub(text, 1, 16) then redis.call('SPUBLISH', KEYS[2], 'changed') end
return {'OK', 1, history, count}
