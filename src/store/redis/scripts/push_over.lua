-- push_over: stores messages of one partition under a policy about ids that are there, one after the other.
--   KEYS[1] T:gen   KEYS[2] T:c:<stream>   KEYS[3] T:seen   KEYS[4] T:x   KEYS[5] T:gone   KEYS[6] T:wake   KEYS[7] T:purged
--   then for each group T:<group>:z, :h, :a, :dh   with 'after' then for each group T:<group>:m, :n
--   ARGV[1] as in _history   ARGV[2] valid until, ms   ARGV[3] bodies a partition may hold
--   ARGV[4] 'reject', 'replace', 'debounce' or 'after', and behind that ',<number>' for each group that is being copied
--   ARGV[5] time override, us, or ''   ARGV[6] number of the call   ARGV[7] version of the first message, us; those of the others count up
--   then n times (due ms, id, body, and with 'debounce' how long after the first push it may be due, ms, or ''; with 'after' the id
--   of the message before it as a dead letter)
-- Returns {'OK', now us, n times 'stored' 'behind' 'duplicate' 'replaced' 'debounced' 'in_flight' 'dead' 'other_key' or 'expires';
--   behind 'debounced' and 'duplicate' `@<due ms>` if that is earlier than it was asked for} or, with nothing changed, a refusal of
--   _history, {'LATE', now us} {'FULL', now us} {'OUTDATED', now us, version us} {'GAP', now us}.
-- A crash before or after leaves all or nothing. Repeats and late copies as in push; T:seen and T:x as in push. A group that
-- has settled the message does not get it again; with 'after' it does, since each group decides for itself. A message of the id with
-- another key is another message, and stays.
local now_us, answer = time_us(ARGV[5])
local now = math.floor(now_us / 1000)
if now > tonumber(ARGV[2]) then return {'LATE', answer} end
if refusal then return refusal end
local known, answered = begin_call(KEYS[2], ARGV[6])
if known == 'late' then return {'LATE', answer} end
if known == 'gap' then return {'GAP', answer} end
local answers = {'OK', answer}
if known == 'repeat' then
  for verdict in string.gmatch(answered, '%S+') do answers[#answers + 1] = verdict end
  -- A message that a journal brought back was stored.
  if #answers == 2 then for _ = 8, #ARGV, 4 do answers[#answers + 1] = 'stored' end end
  return repeated(answers)
end
local policy, copied = string.match(ARGV[4], '^(%a+)(.*)$')
local groups = (#KEYS - 7) / (policy == 'after' and 6 or 4)
local z, h, a, dh = {}, {}, {}, {}
for g = 1, groups do z[g], h[g], a[g], dh[g] = KEYS[4 * g + 4], KEYS[4 * g + 5], KEYS[4 * g + 6], KEYS[4 * g + 7] end
local n = (#ARGV - 7) / 4
for g = 1, groups do
  if redis.call('HLEN', h[g]) + n > tonumber(ARGV[3]) then
    refuse_call(KEYS[2])
    return {'FULL', answer}
  end
end
-- The stored message has the version of a later operation of another broker: nothing is changed, whatever came before it.
local purged = last_purge(KEYS[7])
for i = 8, #ARGV, 4 do
  local version = tonumber(ARGV[7]) + (i - 8) / 4
  local newest = math.max(purged, tonumber(redis.call('ZSCORE', KEYS[4], ARGV[i + 1]) or 0))
  for g = 1, groups do
    local old = redis.call('HGET', h[g], ARGV[i + 1])
    if old then newest = math.max(newest, newest_version_of(old)) end
  end
  if newest >= version then
    refuse_call(KEYS[2])
    return {'OUTDATED', answer, string.format('%.0f', newest)}
  end
end
local heads = {}
for g = 1, groups do
  heads[g] = tonumber(redis.call('ZRANGE', z[g], '0', '0', 'WITHSCORES')[2]) or math.huge
end

local earliest
local function schedule(g, id, due, score)
  redis.call('ZADD', z[g], score, id)
  if tonumber(due) < heads[g] then
    heads[g] = tonumber(due)
    if not earliest or heads[g] < tonumber(earliest) then earliest = due end
  end
end

local function add(id, due, body)
  local seen = redis.call('ZSCORE', KEYS[3], id)
  if seen and tonumber(seen) > now then return 'duplicate' end
  redis.call('ZREM', KEYS[4], id)
  local score = place and place(z, now, tonumber(due)) or due
  for g = 1, groups do
    schedule(g, id, due, score)
    redis.call('HSET', h[g], id, body)
  end
  return 'stored'
end

-- The reason against replacing or moving the message under an id; nothing if it may be.
local function refusal(due, body, found, in_flight, dead)
  if policy == 'reject' then return 'duplicate' end
  local key = key_of(body)
  for _, old in pairs(found) do
    if key_of(old) ~= key then return 'other_key' end
  end
  if policy == 'debounce' then
    for _, old in pairs(found) do
      if due_of(old) == tonumber(due) then return 'duplicate' end
    end
  end
  if dead then return 'dead' end
  if in_flight then return 'in_flight' end
  if policy == 'debounce' then
    for _, old in pairs(found) do
      if expires_at(old) <= tonumber(due) then return 'expires' end
    end
  end
end

-- Each group decides for itself.
local function push_after(due, id, body, dead_id)
  local found, olds, is_there = {}, {}, false
  for g = 1, groups do
    local m = KEYS[6 + 4 * groups + 2 * g]
    found[g], olds[g] = found_to_follow(z[g], h[g], dh[g], m, id, body)
    if found[g] == 'other_key' then return 'other_key' end
    if found[g] == 'on_its_way' then return 'in_flight' end
    is_there = is_there or found[g] ~= 'stored'
  end
  if not is_there then return add(id, due, body) end
  local seen = redis.call('ZSCORE', KEYS[3], id)
  local is_seen, verdict = seen and tonumber(seen) > now, 'duplicate'
  for g = 1, groups do
    if found[g] == 'behind' then
      local had_one = follow(KEYS[7 + 4 * groups + 2 * g], h[g], now, id, olds[g], body, dead_id)
      if verdict ~= 'behind' then verdict = had_one and 'replaced' or 'behind' end
    elseif found[g] == 'stored' and not (is_seen or is_copied(copied, g)) then
      redis.call('ZREM', KEYS[4], id)
      schedule(g, id, due, place and place(z, now, tonumber(due)) or due)
      redis.call('HSET', h[g], id, body)
      verdict = 'behind'
    end
  end
  return verdict
end

local function push(due, id, body, max)
  local found, in_flight, dead = {}, false, false
  for g = 1, groups do
    local old = redis.call('HGET', h[g], id)
    if old then
      found[g] = old
      if not redis.call('ZSCORE', z[g], id) then in_flight = true end
    elseif redis.call('HEXISTS', dh[g], id) == 1 then
      dead = true
    end
  end
  if not next(found) and not dead then return add(id, due, body), due end
  if max ~= '' then due = bounded(due, tonumber(max), found) end
  local refused = refusal(due, body, found, in_flight, dead)
  if refused then return refused, due end
  local score = place and place(z, now, tonumber(due)) or due
  for g, old in pairs(found) do
    schedule(g, id, due, score)
    if policy == 'replace' then
      redis.call('HSET', h[g], id, body)
      redis.call('HDEL', a[g], id)
    else
      redis.call('HSET', h[g], id, set_due(old, tonumber(due), version_of(body)))
      local charge = redis.call('HGET', a[g], id)
      if charge then redis.call('HSET', a[g], id, charged_due(charge, due)) end
    end
  end
  return policy == 'replace' and 'replaced' or 'debounced', due
end

for i = 8, #ARGV, 4 do
  local verdict, due
  if policy == 'after' then
    verdict, due = push_after(unpack(ARGV, i, i + 3)), ARGV[i]
  else
    verdict, due = push(unpack(ARGV, i, i + 3))
  end
  local is_earlier = due ~= ARGV[i] and (verdict == 'debounced' or verdict == 'duplicate')
  answers[#answers + 1] = is_earlier and verdict .. '@' .. due or verdict
  if policy ~= 'reject' and (verdict == 'stored' or verdict == 'behind' or verdict == 'replaced' or verdict == 'debounced') then
    remember_version(KEYS[5], now_us, ARGV[i + 1], tonumber(ARGV[7]) + (i - 8) / 4)
  end
end
end_call(KEYS[2], ARGV[6], table.concat(answers, ' ', 3))
if place then remember_places(now) end
if earliest then redis.call('SPUBLISH', KEYS[6], earliest) end
return counted(answers)
