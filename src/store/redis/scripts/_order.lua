-- The order within a millisecond, in a topic with ordering: a score is the millisecond and so many 2048ths of it.
--   KEYS: the last one is T:o, a zset: a millisecond -> the place given last to what is due in it. It is taken off the list.
-- A message that is pushed before its millisecond has come goes into the first half of it, behind the last one in a zset: nothing of
-- that millisecond is reserved yet. A later one goes into the second half, behind the last one that T:o remembers,
-- which may be reserved by now. So a place is never given twice while one who has it may come back to it, and later
-- pushes have later places. A full half continues in the next millisecond, and T:o remembers where.
-- T:o forgets the earliest milliseconds past 2,000 of them, and all of them an hour after the last push. Doubles are exact
-- to 2048ths up to the year 2109.
local STEP, HALF, REMEMBERED = 1 / 2048, 0.5, 2000
local order_key = table.remove(KEYS)
local given = {}

local function given_last(ms)
  if given[ms] == nil then given[ms] = tonumber(redis.call('ZSCORE', order_key, string.format('%.0f', ms))) or false end
  return given[ms]
end

-- The last place in a millisecond that one of the zsets holds. The first one of all is left to what is redriven.
local function held_last(zsets, ms)
  local last = ms
  for _, z in ipairs(zsets) do
    local found = redis.call('ZRANGE', z, '(' .. string.format('%.0f', ms + 1), string.format('%.0f', ms), 'BYSCORE', 'REV',
      'LIMIT', 0, 1, 'WITHSCORES')
    last = math.max(last, tonumber(found[2]) or last)
  end
  return last
end

-- The place, as text, of a message that is due at `due`, ms, and pushed at `now`, ms; before all that get theirs later.
local function place(zsets, now, due)
  local ms, mine = due, nil
  while not mine do
    local last = given_last(ms)
    if last and last >= ms + 1 then
      ms = math.floor(last)
    else
      last = last or held_last(zsets, ms)
      if ms <= now then last = math.max(last, ms + HALF - STEP) end
      local full = ms <= now and ms + 1 or ms + HALF
      if last + STEP < full then mine = last + STEP else ms = ms + 1 end
    end
  end
  given[ms] = mine
  if ms ~= due then given[due] = mine end
  return string.format('%.17g', mine)
end

-- Keeps what the next call cannot find in the zsets.
local function remember_places(now)
  local added = false
  for ms, last in pairs(given) do
    if last and (ms <= now or last >= ms + 1) then
      redis.call('ZADD', order_key, string.format('%.17g', last), string.format('%.0f', ms))
      added = true
    end
  end
  if not added then return end
  local extra = redis.call('ZCARD', order_key) - REMEMBERED
  if extra > 0 then redis.call('ZREMRANGEBYRANK', order_key, 0, extra - 1) end
  redis.call('PEXPIRE', order_key, 3600000)
end
