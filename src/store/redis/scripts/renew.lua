-- renew: prolongs a lease, or resumes one that lapsed and that nobody took, under the same epoch.
--   KEYS[1] T:<group>:lease   KEYS[2] T:<group>:r   KEYS[3] T:<group>:z   KEYS[4] T:gen
--   ARGV[1] member   ARGV[2] ttl, ms   ARGV[3] epoch   ARGV[4] time override, us, or ''
-- Returns {'OK', now us, earliest due time ms or '', generation, 1 if a page of a move is on its way} or {'LOST', now us, holder or ''}.
-- Another member that took the partition meanwhile wrote another epoch, so an old one can never come back. A repeat prolongs again.
local _, answer = time_us(ARGV[4])
local holder = redis.call('GET', KEYS[1])
local line, page = unpack(redis.call('HMGET', KEYS[2], '@', 'm'))
if (holder and holder ~= ARGV[1]) or not line or string.match(line, '^[^/]*') ~= ARGV[3] then
  return {'LOST', answer, holder or ''}
end
if holder then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
end
local head = redis.call('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES')
return {'OK', answer, head[2] or '', redis.call('GETRANGE', KEYS[4], '0', '15'), page and 1 or 0}
