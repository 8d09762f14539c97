-- The memory of dedup keys: T:dedup, a zset without scores of `<dedup key> NUL <pushed at, ms> <end of its window, ms> <id>`,
-- and T:dedup-end, a zset: the same -> end of the window, ms. A dedup key as an argument is `<pushed at> <end> <dedup key>`.
-- All these times have 15 digits. Two windows of one key never meet, so of those that begin before a time the last one
-- ends last. Past windows are kept for a day: a log may still bring a push of that time. Past 100,000 it is forgotten earlier.
local DEDUP_KEPT, DEDUP_PAST = 86400000, 100000
local function dedup_of(argument)
  return string.sub(argument, 33), string.sub(argument, 1, 15), string.sub(argument, 17, 31)
end
-- The id of the message whose window meets this one, if one does.
local function first_of(windows, argument)
  local key, from, till = dedup_of(argument)
  local last = redis.call('ZRANGE', windows, '(' .. key .. '\0' .. till, '[' .. key .. '\0', 'BYLEX', 'REV', 'LIMIT', 0, 1)[1]
  local ended, id = string.match(last or '', '(%d+) (%S+)$')
  return ended and tonumber(ended) > tonumber(from) and id or nil
end
local function remember_dedup(windows, ends, now, argument, id)
  local key, from, till = dedup_of(argument)
  local member = key .. '\0' .. from .. ' ' .. till .. ' ' .. id
  redis.call('ZADD', windows, 0, member)
  redis.call('ZADD', ends, till, member)
  -- More than were added, so that it shrinks.
  local past = redis.call('ZRANGE', ends, '-inf', now, 'BYSCORE', 'LIMIT', 0, 3, 'WITHSCORES')
  for i = 1, #past, 2 do
    if tonumber(past[i + 1]) <= now - DEDUP_KEPT or redis.call('ZCARD', ends) > DEDUP_PAST then
      redis.call('ZREM', windows, past[i])
      redis.call('ZREM', ends, past[i])
    end
  end
  redis.call('PEXPIRE', windows, 7 * 86400000 + DEDUP_KEPT)
  redis.call('PEXPIRE', ends, 7 * 86400000 + DEDUP_KEPT)
end
