-- release: gives a lease up.
--   KEYS[1] T:<group>:lease   KEYS[2] T:<group>:r   KEYS[3] T:wake
--   ARGV[1] member   ARGV[2] epoch   ARGV[3] line that nobody holds, without stamp: number of the epoch, '.-/', and when its last
--   delivery may have been made, ms, or 0, which the next owner reads   ARGV[4] time override, us, or ''
-- Returns {'OK', now us} or {'STALE', now us}. A repeat finds the line that nobody holds; a late copy finds another epoch.
local _, answer = time_us(ARGV[4])
local line = redis.call('HGET', KEYS[2], '@') or ''
if string.sub(line, 1, #ARGV[3]) == ARGV[3] then return {'OK', answer} end
if string.match(line, '^[^/]*') ~= ARGV[2] then return {'STALE', answer} end
redis.call('HSET', KEYS[2], '@', ARGV[3] .. answer)
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('SPUBLISH', KEYS[3], 'released')
end
return {'OK', answer}
