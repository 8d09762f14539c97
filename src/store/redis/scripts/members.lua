-- members: reads the live members of a group and what their heartbeats say.
--   KEYS[1] {<prefix>:members-<slot>}:<topic>:<group>   KEYS[2] the same with ':state'
--   ARGV[1] ttl, ms   ARGV[2] time override, us, or ''
-- Returns {'OK', now us, n times (member, time of its heartbeat in ms, state or '')}. A repeat reads it again.
local now_us, now_text = time_us(ARGV[2])
local since = math.floor(now_us / 1000) - tonumber(ARGV[1])
local answers = {'OK', now_text}
local heard =
  redis.call('ZRANGE', KEYS[1], '(' .. string.format('%.0f', since), '+inf', 'BYSCORE', 'LIMIT', 0, 6999, 'WITHSCORES')
if #heard > 0 then
  local members = {}
  for at = 1, #heard, 2 do members[#members + 1] = heard[at] end
  local states = redis.call('HMGET', KEYS[2], unpack(members))
  for at = 1, #members do
    answers[3 * at], answers[3 * at + 1], answers[3 * at + 2] = heard[2 * at - 1], heard[2 * at], states[at] or ''
  end
end
return answers
