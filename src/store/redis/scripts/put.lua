-- put: stores messages of one partition under a policy about ids that are there, one after the other.
--   KEYS[1] T:gen   KEYS[2] T:seen   KEYS[3] T:x   KEYS[4] T:wake   then for each group T:<group>:z, :h, :a, :dh
--   ARGV[1] generation, 16 digits   ARGV[2] valid until, ms   ARGV[3] 'live' or 'replay'   ARGV[4] bodies a pair may hold
--   ARGV[5] 'reject', 'replace' or 'debounce'   ARGV[6] time override, us, or ''   then n times (due ms, id, body)
-- Returns {'OK', now us, n times 'stored' 'duplicate' 'replaced' 'debounced' 'in_flight' 'dead' or 'expires'} or, with nothing
--   changed, {'LATE', now us} {'STALE', now us, descriptor} {'BEHIND', now us} {'FULL', now us}.
-- A crash before or after leaves all or nothing. A repeat finds the very body, or the due time, that it brings, and answers
-- that it is there. T:seen and T:x as in push. A group that has settled the message does not get it again.
local now_us = time_us(ARGV[6])
local now = math.floor(now_us / 1000)
local answer = string.format('%.0f', now_us)
if now > tonumber(ARGV[2]) then return {'LATE', answer} end
local generation = redis.call('GETRANGE', KEYS[1], 0, 15)
if generation ~= ARGV[1] then
  if generation > ARGV[1] then return {'STALE', answer, redis.call('GET', KEYS[1])} end
  return {'BEHIND', answer}
end
local replayed, policy = ARGV[3] == 'replay', ARGV[5]
local groups, n = (#KEYS - 4) / 4, (#ARGV - 6) / 3
local heads = {}
for g = 1, groups do
  if redis.call('HLEN', KEYS[4 * g + 2]) + n > tonumber(ARGV[4]) then return {'FULL', answer} end
  heads[g] = tonumber(redis.call('ZRANGE', KEYS[4 * g + 1], 0, 0, 'WITHSCORES')[2]) or math.huge
end

local zsets = {}
for g = 1, groups do zsets[g] = KEYS[4 * g + 1] end
local earliest
local function schedule(g, id, due, score)
  redis.call('ZADD', zsets[g], score, id)
  if tonumber(due) < heads[g] then
    heads[g] = tonumber(due)
    if not earliest or heads[g] < tonumber(earliest) then earliest = due end
  end
end

local function add(id, due, body)
  local seen = redis.call('ZSCORE', KEYS[2], id)
  if seen and tonumber(seen) > now then return 'duplicate' end
  local cancelled = redis.call('ZSCORE', KEYS[3], id)
  if cancelled then
    if replayed and pushed_at(body) < tonumber(cancelled) then return 'duplicate' end
    redis.call('ZREM', KEYS[3], id)
  end
  local score = place and place(zsets, now, tonumber(due)) or due
  for g = 1, groups do
    schedule(g, id, due, score)
    redis.call('HSET', KEYS[4 * g + 2], id, body)
  end
  return 'stored'
end

-- What may be done about an id that is there; nothing when it may be replaced or moved.
local function refusal(due, body, found, in_flight, dead)
  for _, old in pairs(found) do
    if policy == 'debounce' then
      local is_moved = due_of(old) == tonumber(due) or (replayed and due_of(old) > tonumber(due))
      if is_moved then return 'duplicate' end
    elseif old == body or (replayed and pushed_at(old) > pushed_at(body)) then
      return old == body and policy == 'reject' and 'stored' or 'duplicate'
    end
  end
  if policy == 'reject' then return 'duplicate' end
  if dead then return 'dead' end
  if in_flight then return 'in_flight' end
  if policy == 'debounce' then
    for _, old in pairs(found) do
      if expires_at(old) <= tonumber(due) then return 'expires' end
    end
  end
end

local function put(due, id, body)
  local found, in_flight, dead = {}, false, false
  for g = 1, groups do
    local old = redis.call('HGET', KEYS[4 * g + 2], id)
    if old then
      found[g] = old
      if not redis.call('ZSCORE', KEYS[4 * g + 1], id) then in_flight = true end
    elseif redis.call('HEXISTS', KEYS[4 * g + 4], id) == 1 then
      dead = true
    end
  end
  if not next(found) and not dead then return add(id, due, body) end
  local refused = refusal(due, body, found, in_flight, dead)
  if refused then return refused end
  local score = place and place(zsets, now, tonumber(due)) or due
  for g, old in pairs(found) do
    schedule(g, id, due, score)
    local h, a = KEYS[4 * g + 2], KEYS[4 * g + 3]
    if policy == 'replace' then
      redis.call('HSET', h, id, body)
      redis.call('HDEL', a, id)
    else
      redis.call('HSET', h, id, due_at(old, tonumber(due)))
      local charge = redis.call('HGET', a, id)
      if charge then redis.call('HSET', a, id, charged_due(charge, due)) end
    end
  end
  return policy == 'replace' and 'replaced' or 'debounced'
end

local answers = {'OK', answer}
for i = 7, #ARGV, 3 do answers[#answers + 1] = put(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
if place then remember_places(now) end
if earliest then redis.call('SPUBLISH', KEYS[4], earliest) end
return answers
