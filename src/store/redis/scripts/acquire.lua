-- acquire: takes the lease of a partition and begins a new epoch.
--   KEYS[1] T:<group>:lease   KEYS[2] T:<group>:r   KEYS[3] T:gen
--   ARGV[1] member   ARGV[2] ttl, ms   ARGV[3] epoch expected, '' for none   ARGV[4] new epoch
--   ARGV[5] generation, 16 digits   ARGV[6] time override, us, or ''
-- Returns {'OK', now us, owner line, reservations left behind} {'HELD', now us, member, ms left}
--   {'CHANGED', now us} {'STALE', now us}. HELD comes before CHANGED, so that who lost a race learns to whom.
-- The expected epoch makes it a compare-and-set: a copy that arrives late changes nothing. A repeat finds its own
-- token, which is never used twice, and answers the same line.
local now_us, answer = time_us(ARGV[6])
if redis.call('GETRANGE', KEYS[3], 0, 15) > ARGV[5] then return {'STALE', answer} end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {'HELD', answer, holder, redis.call('PTTL', KEYS[1])} end
local line = redis.call('HGET', KEYS[2], '@')
local epoch = line and string.match(line, '^[^/]*') or ''
if epoch ~= ARGV[3] and epoch ~= ARGV[4] then return {'CHANGED', answer} end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if epoch ~= ARGV[4] then
  line = ARGV[4] .. '/0/' .. answer
  redis.call('HSET', KEYS[2], '@', line)
end
return {'OK', answer, line, redis.call('HLEN', KEYS[2]) - 1 - redis.call('HEXISTS', KEYS[2], 'm')}
