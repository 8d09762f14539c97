-- acquire: takes the lease of a partition and begins a new epoch.
--   KEYS[1] T:gen   KEYS[2] T:<group>:lease   KEYS[3] T:<group>:r
--   ARGV[1] as in _history   ARGV[2] member   ARGV[3] ttl, ms   ARGV[4] epoch expected, '' for none   ARGV[5] new epoch
--   ARGV[6] time override, us, or ''
-- Returns {'OK', now us, owner line, reservations left behind} {'HELD', now us, member, ms left}
--   {'CHANGED', now us}, or a refusal of _history. HELD comes before CHANGED, so that who lost a race learns to whom.
-- The expected epoch makes it a compare-and-set: a copy that arrives late changes nothing. A repeat finds its own
-- token, which is never used twice, and answers the same line.
local now_us, answer = time_us(ARGV[6])
if refusal and refusal[1] ~= 'BEHIND' then return refusal end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[2] then return {'HELD', answer, holder, redis.call('PTTL', KEYS[2])} end
local line = redis.call('HGET', KEYS[3], '@')
local epoch = line and string.match(line, '^[^/]*') or ''
if epoch ~= ARGV[4] and epoch ~= ARGV[5] then return {'CHANGED', answer} end
if not redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3]) then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
if epoch ~= ARGV[5] then
  line = ARGV[5] .. '/0/' .. answer
  redis.call('HSET', KEYS[3], '@', line)
end
return counted({'OK', answer, line, redis.call('HLEN', KEYS[3]) - 1 - redis.call('HEXISTS', KEYS[3], 'm')})
