-- peek: looks at one message.
--   KEYS[1] T:<group>:z  [2] T:<group>:h  [3] T:<group>:a  [4] T:<group>:dz  [5] T:<group>:dh  [6] T:<group>:lease  [7] T:<group>:m
--   ARGV[1] id   ARGV[2] time override, us, or ''
-- Returns {'LIVE', now us, owner or '', body, score or '', attempts or '', topic that it is being moved to or ''} {'DEAD', now us, owner or '', value, died at ms}
--   {'NONE', now us}.
-- A body without a score is in a reservation, or on its way to another topic. Changes nothing.
local _, answer = time_us(ARGV[2])
local owner = redis.call('GET', KEYS[6]) or ''
local body = redis.call('HGET', KEYS[2], ARGV[1])
if body then
  local attempts = redis.call('HGET', KEYS[3], ARGV[1]) or ''
  local score, to = redis.call('ZSCORE', KEYS[1], ARGV[1]), ''
  if not score and redis.call('HEXISTS', KEYS[7], ARGV[1]) == 1 then
    to = string.match(redis.call('HGET', KEYS[7], ' ') or '', '^%d+ %S+ (%S+)') or ''
  end
  return {'LIVE', answer, owner, body, score or '', attempts, to}
end
local dead = redis.call('HGET', KEYS[5], ARGV[1])
if dead then return {'DEAD', answer, owner, dead, redis.call('ZSCORE', KEYS[4], ARGV[1]) or '0'} end
return {'NONE', answer}
