-- roll: shows a descriptor to a partition; an older one never replaces a newer one.
--   KEYS[1] T:gen   ARGV[1] "<generation, 16 digits> <descriptor>"   ARGV[2] ms to keep it, or '' for ever
-- Returns {'OK', 1 if it is in place now, 0 if a newer one is}. A repeat does the same.
local seen = redis.call('GETRANGE', KEYS[1], 0, 15)
if seen > string.sub(ARGV[1], 1, 16) then return {'OK', 0} end
if ARGV[2] == '' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return {'OK', 1}
