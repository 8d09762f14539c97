-- members: reads the live members of a group and what their heartbeats say.
--   KEYS[1] {<prefix>:members-<slot>}:<topic>:<group>   KEYS[2] the same with ':state'
--   ARGV[1] ttl, ms   ARGV[2] time override, us, or ''
-- Returns {'OK', now us, n times (member, state or '')}. A repeat reads it again.
local now_us, now_text = time_us(ARGV[2])
local since = math.floor(now_us / 1000) - tonumber(ARGV[1])
local answers = {'OK', now_text}
local members = redis.call('ZRANGE', KEYS[1], '(' .. string.format('%.0f', since), '+inf', 'BYSCORE', 'LIMIT', 0, 6999)
if #members > 0 then
  local states = redis.call('HMGET', KEYS[2], unpack(members))
  for at = 1, #members do
    answers[1 + 2 * at], answers[2 + 2 * at] = members[at], states[at] or ''
  end
end
return answers
