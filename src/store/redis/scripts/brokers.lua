-- brokers: notes how far a broker is with restoring, and answers how far all are that keep a journal.
--   KEYS[1] <prefix>:brokers: broker -> 'busy' or 'settled', and when it said so, ms
--   ARGV[1] broker   ARGV[2] 'busy', 'settled', 'gone' to be forgotten, or 'look' to change nothing   ARGV[3] time override, us, or ''
-- Returns {'OK', now us, n times (broker, 'busy' or 'settled', ms since it said so)}. A repeat says it again.
local now_us = time_us(ARGV[3])
local now = math.floor(now_us / 1000)
if ARGV[2] == 'gone' then
  redis.call('HDEL', KEYS[1], ARGV[1])
elseif ARGV[2] ~= 'look' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. now)
end
local answers = {'OK', string.format('%.0f', now_us)}
local cursor = '0'
repeat
  local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', 100)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local said, at = string.match(page[2][i + 1], '^(%a+) (%d+)$')
    local n = #answers
    answers[n + 1], answers[n + 2], answers[n + 3] = page[2][i], said, math.max(0, now - tonumber(at))
  end
until cursor == '0'
return answers
