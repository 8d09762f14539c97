-- heartbeat: records heartbeats of a member in groups of one slot, and returns the live members of each.
--   KEYS[2i - 1] {<prefix>:members-<slot>}:<topic>:<group>   KEYS[2i] the same with ':state'
--   ARGV[1] member   ARGV[2] ttl, ms   ARGV[3] time override, us, or ''
--   ARGV[2 + 2i] state of the member in group i; it begins with its demand, '0' or '1'   ARGV[3 + 2i] channel of the group
-- Returns {'OK', now us, for each group: n times 2, n times (member, '0' or '1')}. A repeat records it again.
local now_us, now_text = time_us(ARGV[3])
local now, me = math.floor(now_us / 1000), ARGV[1]
local answers = {'OK', now_text}
for i = 1, #KEYS / 2 do
  local heartbeats, states, state = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 + 2 * i]
  local silent = redis.call('ZRANGE', heartbeats, '-inf', now - tonumber(ARGV[2]), 'BYSCORE', 'LIMIT', 0, 6999)
  if #silent > 0 then
    redis.call('ZREM', heartbeats, unpack(silent))
    redis.call('HDEL', states, unpack(silent))
  end
  local is_news = redis.call('ZADD', heartbeats, now, me) == 1
  local members = redis.call('ZRANGE', heartbeats, 0, 6999)
  local said = redis.call('HMGET', states, unpack(members))
  local n = #answers + 1
  answers[n] = string.format('%d', 2 * #members)
  for at = 1, #members do
    if members[at] == me and said[at] ~= state then
      is_news = is_news or not said[at] or string.sub(said[at], 1, 1) ~= string.sub(state, 1, 1)
      said[at] = state
      redis.call('HSET', states, me, state)
    end
    answers[n + 2 * at - 1], answers[n + 2 * at] = members[at], string.sub(said[at] or '0', 1, 1)
  end
  redis.call('PEXPIRE', heartbeats, ARGV[2] * 2)
  redis.call('PEXPIRE', states, ARGV[2] * 2)
  if is_news then redis.call('SPUBLISH', ARGV[3 + 2 * i], 'changed') end
end
return answers
