-- publish_settings: shows a descriptor to a partition, which is made by that; an older one never replaces a newer one.
--   KEYS[1] T:gen   KEYS[2] T:wake   ARGV[1] as in _history
--   ARGV[2] descriptor   ARGV[3] ms to keep it, or '' indefinitely   ARGV[4] 1 to announce here that the topic changed
--   ARGV[5] end of the id of its history if it is made now, 8 characters   ARGV[6] time override, us, or ''
-- Returns {'OK', 1 if it is in place now, 0 if a newer one is, history} or a refusal of _history. A repeat does the same.
if refusal and refusal[1] == 'ANOTHER' then return refusal end
local seen = redis.call('GETRANGE', KEYS[1], '0', '41')
local history = string.sub(seen, 18)
if refusal and refusal[1] == 'STALE' then return {'OK', 0, history} end
-- By the time of Redis, so that a late copy of this call makes another history than the first one did.
if history == '' then history = string.format('%016.0f', (time_us(ARGV[6]))) .. '-' .. ARGV[5] end
local text = string.sub(ARGV[1], 1, 16) .. ' ' .. history .. ' ' .. ARGV[2]
if ARGV[3] == '' then
  redis.call('SET', KEYS[1], text)
else
  redis.call('SET', KEYS[1], text, 'PX', ARGV[3])
end
if ARGV[4] == '1' and string.sub(seen, 1, 16) ~= string.sub(text, 1, 16) then redis.call('SPUBLISH', KEYS[2], 'changed') end
return {'OK', 1, history}
