-- restore_progress: notes how far a broker is with restoring, and answers how far all are that keep a journal.
--   KEYS[1] <prefix>:brokers: broker -> 'busy' or 'settled', and when it said so, ms; '!' -> when a broker last noticed a loss, ms
--   ARGV[1] broker   ARGV[2] 'lost' when it noticed a loss, 'busy', 'settled', 'gone' to be forgotten, or 'look' to change nothing
--   ARGV[3] for 'settled': when it began to offer what it had, ms   ARGV[4] time override, us, or ''
-- Returns {'OK', now us, now ms, when a loss was noticed last, ms, 1 if this broker was listed before, n times (broker,
--   'busy' or 'settled', when it said so, ms)}.
--   A repeat says it again. A broker that began to offer before a loss that another one noticed is not settled, whatever it
--   says: it may have met a Redis, or a node of the cluster, that lost nothing yet. So nobody is settled right after a loss.
local now_us, now_text = time_us(ARGV[4])
local now = math.floor(now_us / 1000)
local was_listed = redis.call('HEXISTS', KEYS[1], ARGV[1])
local lost, said = tonumber(redis.call('HGET', KEYS[1], '!') or 0), ARGV[2]
if said == 'lost' then
  lost = math.max(now, lost + 1)
  redis.call('HSET', KEYS[1], '!', string.format('%.0f', lost))
elseif said == 'gone' then
  redis.call('HDEL', KEYS[1], ARGV[1])
elseif said ~= 'look' then
  if said == 'settled' and tonumber(ARGV[3]) < lost then said = 'busy' end
  redis.call('HSET', KEYS[1], ARGV[1], said .. ' ' .. string.format('%.0f', now))
end
local answers = {'OK', now_text, string.format('%.0f', now), string.format('%.0f', lost), was_listed}
local cursor = '0'
repeat
  local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', 100)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local state, at = string.match(page[2][i + 1], '^(%a+) (%d+)$')
    if said == 'lost' and state == 'settled' then
      state = 'busy'
      redis.call('HSET', KEYS[1], page[2][i], state .. ' ' .. at)
    end
    local n = #answers
    if state then answers[n + 1], answers[n + 2], answers[n + 3] = page[2][i], state, at end
  end
until cursor == '0'
return answers
