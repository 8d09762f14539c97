-- note_process: notes which process of Redis this is, and answers for how long that has been noted.
--   KEYS[1] <prefix>:history   ARGV[1] run id and replication id   ARGV[2] 1 if there is anything that could be lost
--   ARGV[3] time override, us, or ''   ARGV[4] 1 if the caller saw that it lost something although it is the same
-- Returns {'OK', now us, age of the notice in ms}. A repeat finds its own notice, or makes it younger.
-- The notice itself may be lost with the rest; then it names an older Redis, and that is noticed as well.
local now_us, now_text = time_us(ARGV[3])
local now = math.floor(now_us / 1000)
local id, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+)$')
if id ~= ARGV[1] or ARGV[4] == '1' then
  since = (id or ARGV[2] == '1') and now or 0
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. since)
end
return {'OK', now_text, math.max(0, now - tonumber(since))}
