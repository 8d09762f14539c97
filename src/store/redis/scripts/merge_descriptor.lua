-- merge_descriptor: shows a descriptor to a partition, and makes the partition if it is not there. The newer descriptor counts, or, if
-- ARGV[5] says what it replaces, the new one if that is still there.
--   KEYS[1] T:gen   KEYS[2] T:wake   ARGV[1] as in _history
--   ARGV[2] descriptor   ARGV[3] ms to keep it, or '' indefinitely   ARGV[4] 1 to announce here that the topic changed
--   ARGV[5] generation that it replaces, 16 digits, and no other; 'none' to replace nothing; '' to replace any older one
--   ARGV[6] four characters by chance   ARGV[7] time override, us, or ''   ARGV[8] process of Redis, 12 characters
-- Returns {'OK', 1 if it is in place now, else 0, the one that is instead or '', history, count} or a refusal of _history. A repeat finds
-- its own in place.
if refusal and refusal[1] == 'ANOTHER' then return refusal end
local generation, history = string.sub(ARGV[1], 1, 16), string.sub(there, 18, 49)
local before = there == '' and 'none' or string.sub(there, 1, 16)
local replaces = ARGV[5] == before
if ARGV[5] == '' then replaces = there == '' or before < generation end
if not replaces then
  local instead = redis.call('GETRANGE', KEYS[1], '67', '-1')
  if instead == ARGV[2] or (ARGV[5] == '' and before == generation) then instead = '' end
  return {'OK', instead == '' and there ~= '' and 1 or 0, instead, history, string.sub(there, 51)}
end
if there == '' then history = history_of(ARGV[8], ARGV[7], ARGV[6]) end
local count = string.format('%016.0f', (tonumber(string.sub(there, 51)) or 0) + 1)
local text = generation .. ' ' .. history .. ' ' .. count .. ' ' .. ARGV[2]
if ARGV[3] == '' then
  redis.call('SET', KEYS[1], text)
else
  redis.call('SET', KEYS[1], text, 'PX', ARGV[3])
end
if ARGV[4] == '1' then redis.call('SPUBLISH', KEYS[2], 'changed') end
return {'OK', 1, '', history, count}
