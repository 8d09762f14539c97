-- push: stores messages of one partition for all groups, all or none.
--   KEYS[1] T:gen   KEYS[2] T:c:<stream>   KEYS[3] T:seen   KEYS[4] T:x   KEYS[5] T:wake   KEYS[6] T:gone
--   KEYS[7] T:purged   KEYS[8] T:dedup   KEYS[9] T:dedup-end   then for each group T:<group>:z, :h, :dh
--   ARGV[1] as in _history   ARGV[2] valid until, ms   ARGV[3] 'fresh' or 'live'   ARGV[4] bodies a partition may hold
--   ARGV[5] earliest due time, ms   ARGV[6] time override, us, or ''   ARGV[7] number of the call   ARGV[8] version of the first
--   message, us; those of the others count up   ARGV[9] n   then n times (due ms, id), then n times (id, body), then for each
--   message with a dedup key (which one, from 1; the dedup key)
-- Returns {'OK', now us, for each duplicate `<index>`, then `@<due ms>` of the message that is there, if any is, with a `k` if that has
--   another key, or a `c` if it has other content, and then `=<id of the first>` for its dedup key} or, with nothing changed,
--   a refusal of _history, {'LATE', now us} {'FULL', now us} {'OUTDATED', now us, version us}: an id was cancelled or a group purged under this
--   version, which is not lower: push with later ones; {'GAP', now us}: the partition does not know the call before this one.
-- 'fresh' is for ids that were made for this call: it does not look for them. Each function that a script makes costs a hundredth of a
-- push, so there are few.
-- Equal ids and dedup keys of one call meet in their order. T:x has cancelled ids: who pushes such an id makes it a message again, and it is not cancelled any more; T:gone has its version.
-- A crash before or after leaves all or nothing. A repeat of the call is answered as the first time and changes nothing, also
-- when the messages were consumed meanwhile. A copy that comes later than its caller waited is LATE.
local now_us, answer = time_us(ARGV[6])
local now = math.floor(now_us / 1000)
if now > tonumber(ARGV[2]) then return {'LATE', answer} end
if refusal then return refusal end
local known, answered = begin_call(KEYS[2], ARGV[7])
if known == 'late' then return {'LATE', answer} end
if known == 'gap' then return {'GAP', answer} end
local duplicate, duplicates = {}, {}
if known == 'repeat' then
  for said in string.gmatch(answered, '%S+') do duplicates[#duplicates + 1] = said end
  return repeated({'OK', answer, duplicates})
end

local n, looks = tonumber(ARGV[9]), ARGV[3] ~= 'fresh'
-- Most partitions have none of the keys that would make an id known beside its message: one question for all of them. Where there is
-- one, it is asked for again only if there are many ids, for which a key that is not there costs more than the question.
local rare = {KEYS[3], KEYS[4], KEYS[7]}
for g = 10, #KEYS, 3 do rare[#rare + 1] = KEYS[g + 2] end
local has_rare = not looks or redis.call('EXISTS', unpack(rare)) > 0

-- T:purged has the highest version of a purge.
local purged = has_rare and tonumber(string.match(redis.call('HGET', KEYS[7], ' ') or '0', '^%d+')) or 0
if purged >= tonumber(ARGV[8]) then
  refuse_call(KEYS[2])
  return {'OUTDATED', answer, string.format('%.0f', purged)}
end

local scores, bodies, dedups = 9, 9 + 2 * n, 9 + 4 * n
local ids, dedup = {}, {}
-- Keys are compared only if both have the same id.
local function is_duplicate(i, there, is_dead, of)
  duplicate[i] = true
  local said = compared(ARGV[bodies + 2 * i], there, is_dead, not of or of == ids[i])
  duplicates[#duplicates + 1] = (i - 1) .. said .. (of and '=' .. of or '')
end
local function mark(found, are_dead)
  for i = 1, n do
    if found[i] and not duplicate[i] then is_duplicate(i, found[i], are_dead) end
  end
end
if looks or #ARGV > dedups then
  for i = 1, n do ids[i] = ARGV[scores + 2 * i] end
end
if #ARGV > dedups and redis.call('ZCARD', KEYS[8]) + n > tonumber(ARGV[4]) then
  refuse_call(KEYS[2])
  return {'FULL', answer}
end
for g = 10, #KEYS, 3 do
  local h, dh = KEYS[g + 1], KEYS[g + 2]
  if redis.call('HLEN', h) + n > tonumber(ARGV[4]) then
    refuse_call(KEYS[2])
    return {'FULL', answer}
  end
  if looks then
    mark(redis.call('HMGET', h, unpack(ids)), false)
    if has_rare and (n == 1 or redis.call('EXISTS', dh) == 1) then mark(redis.call('HMGET', dh, unpack(ids)), true) end
  end
end
if looks and has_rare and (n == 1 or redis.call('EXISTS', KEYS[3]) == 1) then
  local seen = redis.call('ZMSCORE', KEYS[3], unpack(ids))
  for i = 1, n do
    if seen[i] and tonumber(seen[i]) > now and not duplicate[i] then is_duplicate(i) end
  end
end
local forgotten = {}
if looks and has_rare and (n == 1 or redis.call('EXISTS', KEYS[4]) == 1) then
  local cancelled = redis.call('ZMSCORE', KEYS[4], unpack(ids))
  for i = 1, n do
    if cancelled[i] and not duplicate[i] then
      if tonumber(cancelled[i]) >= tonumber(ARGV[8]) + i - 1 then
        refuse_call(KEYS[2])
        return {'OUTDATED', answer, cancelled[i]}
      end
      forgotten[#forgotten + 1] = i
    end
  end
end
for at = dedups + 1, #ARGV, 2 do dedup[tonumber(ARGV[at])] = ARGV[at + 1] end
local here = {}
for i = 1, #ids do
  if not duplicate[i] then
    local other = here[ids[i]]
    local first = not other and dedup[i] and first_of(KEYS[8], dedup[i])
    if other then
      is_duplicate(i, ARGV[bodies + 2 * other])
    elseif first then
      -- The first message of its dedup key is in this call, in the partition, or dead there.
      local there, is_dead = here[first] and ARGV[bodies + 2 * here[first]], false
      for g = 10, #KEYS, 3 do
        if not there then there = redis.call('HGET', KEYS[g + 1], first) end
        if not there then
          there = redis.call('HGET', KEYS[g + 2], first)
          is_dead = there ~= false
        end
      end
      is_duplicate(i, there, is_dead, first)
    else
      here[ids[i]] = i
      if dedup[i] then remember_dedup(KEYS[8], KEYS[9], now, dedup[i], ids[i]) end
    end
  end
end
if #duplicates > 0 then end_call(KEYS[2], ARGV[7], table.concat(duplicates, ' ')) end
if #duplicates == n then return counted({'OK', answer, duplicates}) end

if place then
  local zsets = {}
  for g = 10, #KEYS, 3 do zsets[#zsets + 1] = KEYS[g] end
  for i = 1, n do
    local at = scores + 2 * i - 1
    if not duplicate[i] then ARGV[at] = place(zsets, now, tonumber(ARGV[at])) end
  end
  remember_places(now)
end

local function add(z, h)
  if #duplicates == 0 then
    redis.call('ZADD', z, unpack(ARGV, scores + 1, scores + 2 * n))
    redis.call('HSET', h, unpack(ARGV, bodies + 1, bodies + 2 * n))
    return
  end
  for i = 1, n do
    if not duplicate[i] then
      redis.call('ZADD', z, ARGV[scores + 2 * i - 1], ids[i])
      redis.call('HSET', h, ids[i], ARGV[bodies + 2 * i])
    end
  end
end
local earlier = false
for g = 10, #KEYS, 3 do
  local head = redis.call('ZRANGE', KEYS[g], '0', '0', 'WITHSCORES')
  if not head[2] or tonumber(ARGV[5]) < tonumber(head[2]) then earlier = true end
  add(KEYS[g], KEYS[g + 1])
end
for _, i in ipairs(forgotten) do
  if not duplicate[i] then
    redis.call('ZREM', KEYS[4], ids[i])
    remember_version(KEYS[6], now_us, ids[i], tonumber(ARGV[8]) + i - 1)
  end
end
if earlier then redis.call('SPUBLISH', KEYS[5], ARGV[5]) end
return counted({'OK', answer, duplicates})
