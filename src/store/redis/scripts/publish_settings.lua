-- publish_settings: shows a descriptor to a partition; an older one never replaces a newer one.
--   KEYS[1] T:gen   KEYS[2] T:wake
--   ARGV[1] "<generation, 16 digits> <descriptor>"   ARGV[2] ms to keep it, or '' indefinitely
--   ARGV[3] 1 to announce here that the topic changed
-- Returns {'OK', 1 if it is in place now, 0 if a newer one is}. A repeat does the same.
local seen = redis.call('GETRANGE', KEYS[1], 0, 15)
local generation = string.sub(ARGV[1], 1, 16)
if seen > generation then return {'OK', 0} end
if ARGV[2] == '' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
if ARGV[3] == '1' and seen ~= generation then redis.call('SPUBLISH', KEYS[2], 'changed') end
return {'OK', 1}
