-- reserve_by_key: takes sorted messages of some keys, and due messages of the zset behind them, into one reservation. In a fair group it
-- sorts the due messages that it looks at and does not take.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:z   KEYS[3] T:<group>:h   KEYS[4] T:<group>:a   KEYS[5] T:<group>:k
--   KEYS[6] T:<group>:p
--   ARGV[1..3] the call sequence   ARGV[4] field of the reservation   ARGV[5] due messages to take at most
--   ARGV[6] bytes to look at, at most   ARGV[7] bodies to read at a time   ARGV[8] due messages of a key to take at most, if it has no
--   sorted ones; '' in a group that is not fair, where nothing is sorted   ARGV[9] due messages to look at, at most: so many of the
--   oldest, and in a fair group as many of the newest
--   then n times (messages of the key at most, key or '' for those without a key)
-- Returns {'OK', owner line, score of the first in the zset or '', bodies not in the zset and in no page of a move, ids dropped, ids
--   with a blank between them, bodies, attempts, entries left of each key, n times (another key of which messages were sorted, its
--   entries), n times (a paused key that was met, until when, ms)} or what the call sequence answers. `attempts` is empty when none
--   are charged. A repeat answers all but the last three.
-- In a fair group the messages of a paused key are sorted, and none of them is taken.
-- A crash before or after changes nothing or leaves the ids in the reservation, where the next epoch's recovery finds them; they are
-- not sorted then. A repeat reads the bodies of that reservation again.
-- Entries whose message is elsewhere are dropped, some in each call: of a key that has more of them fewer messages come than it has.
local ENTRIES_LOOKED_AT = 2000
local z, h, k = KEYS[2], KEYS[3], KEYS[5]
local ids, bodies, count, dropped = {}, {}, 0, 0
local joined = ''
local room, chunk = tonumber(ARGV[5]), tonumber(ARGV[7])
local bytes, limit, is_full = 0, tonumber(ARGV[6]), false
local share, looks_at = tonumber(ARGV[8]), ARGV[9]
local now_ms = string.sub('000' .. now_text, 1, -4)

local function entry_of(key, ms, id) return key .. '\0' .. string.format('%013.0f', ms) .. id end

-- Whether a key can be one, or its body is damaged: UTF-8 without control characters.
local function is_key(key)
  if not string.find(key, '[^\32-\126]') then return true end
  if string.find(key, '[%z\1-\31\127]') then return false end
  for _, valid in ipairs({
    '[\240][\144-\191][\128-\191][\128-\191]', '[\241-\243][\128-\191][\128-\191][\128-\191]',
    '[\244][\128-\143][\128-\191][\128-\191]', '[\224][\160-\191][\128-\191]',
    '[\225-\236\238\239][\128-\191][\128-\191]', '[\237][\128-\159][\128-\191]', '[\194][\160-\191]',
    '[\195-\223][\128-\191]'
  }) do key = string.gsub(key, valid, ' ') end
  return not string.find(key, '[\128-\255]')
end

-- Reads the bodies of these ids, until the bytes are too many. Returns them, false for one that is missing, and how many were read.
local function read(some)
  local found = redis.call('HMGET', h, unpack(some))
  for i = 1, #some do
    local body = found[i]
    is_full = body and bytes > 0 and bytes + #body > limit
    if is_full then return found, i - 1 end
    bytes = bytes + (body and #body or 0)
  end
  return found, #some
end

local function take(id, body)
  count = count + 1
  ids[count], bodies[count] = id, body
end

-- Looks at the next entries of a key in a range: how many messages were taken, and how many entries are done with.
local function take_sorted(key, most, low, high)
  local entries = redis.call('ZRANGE', k, low, high, 'BYLEX', 'LIMIT', 0, most)
  if #entries == 0 then return 0, 0 end
  local there, places = {}, {}
  for i = 1, #entries do there[i] = string.sub(entries[i], #key + 15) end
  local scores = redis.call('ZMSCORE', z, unpack(there))
  local sorted = {}
  for i = 1, #entries do
    if scores[i] and tonumber(scores[i]) == SORTED + string.sub(entries[i], #key + 2, #key + 14) then
      sorted[#sorted + 1], places[#sorted + 1] = there[i], i
    end
  end
  local before, done = count, #entries
  if #sorted > 0 then
    local found, looked = read(sorted)
    for i = 1, looked do
      if found[i] then take(sorted[i], found[i]) else dropped = dropped + 1 end
    end
    if looked < #sorted then done = places[looked + 1] - 1 end
    if looked > 0 then redis.call('ZREM', z, unpack(sorted, 1, looked)) end
  end
  if done > 0 then redis.call('ZREM', k, unpack(entries, 1, done)) end
  return count - before, done
end

-- Until when a key is paused, if it is.
local paused, paused_until = {}, {}
local has_paused = share and redis.call('EXISTS', KEYS[6]) == 1
local function is_paused(key)
  if not has_paused or key == '' then return false end
  local till = paused_until[key]
  if till == nil then
    till = redis.call('ZSCORE', KEYS[6], key)
    till = till and tonumber(till) > tonumber(now_ms) and till
    paused_until[key] = till
    if till then paused[#paused + 1], paused[#paused + 2] = key, till end
  end
  return till
end

-- How many due messages of a key were taken; the share once the next one has to wait behind a sorted one.
local taken_of, sorted_keys = {}, {}
local has_entries = share and redis.call('EXISTS', k) == 1
local function takes(key)
  if not share or not is_key(key) then return true end
  local taken = taken_of[key]
  if not taken and is_paused(key) then taken = share end
  if not taken then
    taken = has_entries and redis.call('ZLEXCOUNT', k, range_of(key)) > 0 and share or 0
  end
  if taken < share and room > 0 then
    taken_of[key], room = taken + 1, room - 1
    return true
  end
  if not sorted_keys[key] then
    sorted_keys[key], sorted_keys[#sorted_keys + 1] = true, key
  end
  taken_of[key] = share
  return false
end

-- Takes or sorts due messages, which are given as id, score, id, score. It looks at them in this order, and decides oldest first.
local function look_at_due(due, is_newest_first)
  local looked, places, entries, gone = {}, {}, {}, {}
  local at = 1
  is_full = false
  while at < #due and not is_full do
    local some = {}
    for i = at, math.min(at + 2 * chunk - 2, #due - 1), 2 do some[#some + 1] = due[i] end
    local found, n = read(some)
    for i = 1, n do looked[#looked + 1] = {some[i], found[i], due[at + 2 * i - 1]} end
    at = at + 2 * #some
  end
  local first, last, step = 1, #looked, 1
  if is_newest_first then first, last, step = #looked, 1, -1 end
  for i = first, last, step do
    local id, body, ms = unpack(looked[i])
    local key = body and (key_of(body) or '')
    if not body then
      dropped, gone[#gone + 1] = dropped + 1, id
    elseif takes(key) then
      take(id, body)
      gone[#gone + 1] = id
    else
      places[#places + 1], places[#places + 2] = string.format('%.0f', SORTED + ms), id
      entries[#entries + 1], entries[#entries + 2] = '0', entry_of(key, ms, id)
    end
  end
  if #gone > 0 then redis.call('ZREM', z, unpack(gone)) end
  if #places > 0 then
    redis.call('ZADD', z, 'XX', unpack(places))
    redis.call('ZADD', k, unpack(entries))
  end
end

if applied then
  joined = redis.call('HGET', KEYS[1], ARGV[4]) or ''
  for id in string.gmatch(joined, '%S+') do
    count = count + 1
    ids[count], bodies[count] = id, redis.call('HGET', h, id)
  end
else
  local first_due = redis.call('ZRANGE', z, '0', '0', 'WITHSCORES')[2]
  if first_due and tonumber(first_due) > tonumber(now_ms) then first_due = nil end
  local looks = ENTRIES_LOOKED_AT
  for i = 10, #ARGV, 2 do
    local wanted, done, key, any = tonumber(ARGV[i]), 1, ARGV[i + 1], false
    if is_paused(key) then wanted = 0 end
    local low, last = range_of(key)
    -- First those that are due before all that is not sorted. If there are some, no others: messages of the key may be among those
    -- that are not sorted.
    local high = first_due and '(' .. entry_of(key, first_due, '') or last
    while wanted > 0 and done > 0 and not is_full and looks > 0 do
      local taken
      taken, done = take_sorted(key, math.min(wanted, chunk, looks), low, high)
      wanted, looks, any = wanted - taken, looks - done, any or taken > 0
      if done == 0 and high ~= last and not any then high, done = last, 1 end
    end
  end
  local oldest = redis.call('ZRANGE', z, '-inf', now_ms, 'BYSCORE', 'LIMIT', '0', looks_at, 'WITHSCORES')
  if share and #oldest == 2 * tonumber(looks_at) then
    -- The backlog does not take all the bytes.
    local all = limit
    limit = math.floor((bytes + all) / 2)
    look_at_due(oldest)
    limit = all
    look_at_due(redis.call('ZRANGE', z, now_ms, '-inf', 'BYSCORE', 'REV', 'LIMIT', '0', looks_at, 'WITHSCORES'), true)
  else
    look_at_due(oldest)
  end
  if count > 0 then
    joined = table.concat(ids, ' ')
    redis.call('HSET', KEYS[1], '@', line, ARGV[4], joined)
  else
    redis.call('HSET', KEYS[1], '@', line)
  end
end
local attempts = attempts_of(KEYS[4], ids)
local head = redis.call('ZRANGE', z, '0', '0', 'WITHSCORES')
local on_its_way = redis.call('HEXISTS', KEYS[1], 'm') == 1 and moving(KEYS[1], z, h) or 0
local unsettled = math.max(0, redis.call('HLEN', h) - redis.call('ZCARD', z) - on_its_way)
local answer = {'OK', line, head[2] or '', unsettled, dropped, joined, bodies, attempts}
if applied then return answer end
local left, sorted = {}, {}
for i = 11, #ARGV, 2 do
  left[#left + 1], sorted_keys[ARGV[i]] = redis.call('ZLEXCOUNT', k, range_of(ARGV[i])), false
end
for _, key in ipairs(sorted_keys) do
  if sorted_keys[key] then
    sorted[#sorted + 1], sorted[#sorted + 2] = key, redis.call('ZLEXCOUNT', k, range_of(key))
  end
end
answer[9], answer[10], answer[11] = left, sorted, paused
return answer
