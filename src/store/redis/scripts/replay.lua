-- replay: stores messages of one partition that a WAL kept, in the order of the log.
--   KEYS[1] T:gen   KEYS[2] T:c:<log>   KEYS[3] T:seen   KEYS[4] T:x   KEYS[5] T:gone   KEYS[6] T:wake
--   KEYS[7] T:c:<origin>   KEYS[8] T:c:<origin>#<page>, a hash: number of a record that was handed over -> 1
--   KEYS[9] T:purged   KEYS[10] T:dedup   KEYS[11] T:dedup-end
--   then for each group T:<group>:z, :h, :a, :dz, :dh   with 'after' then for each group T:<group>:m, :n
--   ARGV[1] as in _history   ARGV[2] bodies a partition may hold   ARGV[3] 'keep', 'reject', 'replace', 'debounce' or
--   'after', and behind that ',<number>' for each group that is being copied
--   ARGV[4] time override, us, or ''   then n times (number of the record, its number in the log of the broker that handed it over
--   or '', due ms, id, body, dedup key or '', and with 'debounce' how long after the first push it may be due, ms, or ''; with 'after'
--   the id of the message before it as a dead letter)
-- Returns {'OK', now us, a verdict for each record} or, with nothing changed, a refusal of _history, {'FULL', now us}, or
--   {'STALE', now us} for a closed log. Verdicts: 'stored' 'behind' 'replaced' 'debounced' 'duplicate' 'duplicate=<id of the first message of the
--   dedup key>', and two that end the list, since the records behind them were not looked at:
--     'in_flight': a reservation has the message, so it is neither replaced nor moved nor doubled; the record waits until it is settled
--     'other_key': the id has a message with another key, which stays
-- A log is closed once something of it was handed over and replayed: its broker has given it another name.
-- The partition remembers the number of the last record of the log that was applied, and for records that were handed over also those
-- of their first log. A repeat changes nothing: it is 'stored', also when the message was consumed meanwhile, or again a duplicate of the
-- first message of its dedup key.
-- A record is a 'duplicate' if the id was acked within its dedup window; if the partition has a message of the id with this version or a
-- later one, or knows of a later cancel or end of it; with 'keep' and 'reject' if there is any message or dead letter of the id; with
-- 'debounce' if the message is due as late already. One exception: with 'replace' newer content counts although the due time was changed
-- later, and that due time stays. The dedup key of a record that is past is remembered all the same.
-- With 'replace' and 'debounce' a dead letter of the id makes room: it is older.
local now_us, answer = time_us(ARGV[4])
local now = math.floor(now_us / 1000)
if refusal then return refusal end
local policy, copied = string.match(ARGV[3], '^(%a+)(.*)$')
local n = (#ARGV - 4) / 7
local groups = (#KEYS - 11) / (policy == 'after' and 7 or 5)
local z, h, a, dz, dh, names = {}, {}, {}, {}, {}, {}
for g = 1, groups do
  z[g], h[g], a[g], dz[g], dh[g] = unpack(KEYS, 5 * g + 7, 5 * g + 11)
  names[g] = string.match(z[g], '([^:]+):z$')
  if redis.call('HLEN', h[g]) + n > tonumber(ARGV[2]) then return {'FULL', answer} end
end
if redis.call('ZCARD', KEYS[10]) + n > tonumber(ARGV[2]) then return {'FULL', answer} end
local last, closed = string.match(redis.call('GET', KEYS[2]) or '0', '^(%d+) ?(.*)$')
last = tonumber(last)
-- A late copy: what the log had was handed over and replayed, and its broker gave it another name.
if closed == 'closed' then return {'STALE', answer} end
local earliest
local function schedule(g, id, due, score)
  local head = redis.call('ZRANGE', z[g], '0', '0', 'WITHSCORES')[2]
  if (not head or tonumber(due) < tonumber(head)) and (not earliest or tonumber(due) < tonumber(earliest)) then earliest = due end
  redis.call('ZADD', z[g], score, id)
end

-- Whether a message of this version is over in a group: ended there, or purged with it.
local function is_over(g, id, version)
  return math.max(ended_version(KEYS[5], id, names[g]), purged_at(KEYS[9], names[g])) >= version
end
local function is_over_everywhere(id, version)
  for g = 1, groups do
    if not is_over(g, id, version) then return false end
  end
  return true
end

-- Whether what was done later is a new due time for older content: then this content still counts.
local function moved_later(id, body)
  if policy ~= 'replace' then return false end
  for g = 1, groups do
    local old = redis.call('HGET', h[g], id)
    if old and pushed_at(old) < pushed_at(body) then return true end
  end
  return false
end

-- Whether a later operation on the id is known: a change, a cancel or an end.
local function is_past(id, version, body)
  if tonumber(redis.call('ZSCORE', KEYS[5], id) or 0) >= version and not moved_later(id, body) then return true end
  if tonumber(redis.call('ZSCORE', KEYS[4], id) or 0) >= version then return true end
  return tonumber(redis.call('ZSCORE', KEYS[4], id .. ' ') or 0) >= version or is_over_everywhere(id, version)
end

-- A replacement with the successor of the message before it, if that was pushed later.
local function with_later_successor(old, body)
  local _, successor, dead_id = parts_of(old or '')
  return successor and is_later(successor, body) and joined(body, successor, dead_id) or body
end

-- Each group decides for itself: where the message is there, later content counts, and a later due time does not; where it is not,
-- all that is known to be later does.
local function replay_after(is_known, due, id, body, version, dead_id)
  local found, olds, is_there = {}, {}, false
  for g = 1, groups do
    found[g], olds[g] = found_to_follow(z[g], h[g], dh[g], KEYS[10 + 5 * groups + 2 * g], id, body)
    if found[g] == 'other_key' then return 'other_key' end
    local first, successor = parts_of(olds[g] or '')
    if olds[g] and (is_later(first, body) or successor and is_later(successor, body)) then found[g] = 'duplicate' end
    if found[g] == 'on_its_way' then return 'in_flight' end
    is_there = is_there or found[g] ~= 'stored'
  end
  local verdict = 'duplicate'
  for g = 1, groups do
    if found[g] == 'behind' then
      local had_one = follow(KEYS[11 + 5 * groups + 2 * g], h[g], now, id, olds[g], body, dead_id)
      if verdict ~= 'behind' then verdict = had_one and 'replaced' or 'behind' end
    elseif found[g] == 'stored' and not (is_known or is_over(g, id, version) or is_there and is_copied(copied, g)) then
      schedule(g, id, due, place and place(z, now, tonumber(due)) or due)
      redis.call('HSET', h[g], id, body)
      verdict = 'behind'
    end
  end
  if redis.call('ZREM', KEYS[4], id) == 1 then remember_version(KEYS[5], now_us, id, version) end
  return (is_there or verdict == 'duplicate') and verdict or 'stored'
end

local function replay(is_done, due, id, body, dedup, max)
  local first = dedup ~= '' and first_of(KEYS[10], dedup)
  if is_done then return first and first ~= id and 'duplicate=' .. first or 'stored' end
  local version, found, in_flight, dead = version_of(body), {}, false, false
  local seen = redis.call('ZSCORE', KEYS[3], id)
  local is_seen = seen and tonumber(seen) > now
  if policy == 'after' then
    return replay_after(is_seen or is_past(id, version, body), due, id, body, version, max)
  end
  if is_seen then return 'duplicate' end
  if is_past(id, version, body) then
    if dedup ~= '' and not first then remember_dedup(KEYS[10], KEYS[11], now, dedup, id) end
    return 'duplicate'
  end
  for g = 1, groups do
    local old = redis.call('HGET', h[g], id)
    if old then
      if key_of(old) ~= key_of(body) then return 'other_key' end
      if newest_version_of(old) >= version and not (policy == 'replace' and pushed_at(old) < pushed_at(body)) then return 'duplicate' end
      found[g] = old
      in_flight = in_flight or not redis.call('ZSCORE', z[g], id)
    elseif redis.call('HEXISTS', dh[g], id) == 1 then
      dead = true
    end
  end
  local keeps = policy == 'keep' or policy == 'reject'
  if keeps and (next(found) or dead) then return 'duplicate' end
  if first then return 'duplicate=' .. first end
  if max ~= '' then due = bounded(due, tonumber(max), found) end
  if policy == 'debounce' then
    for g = 1, groups do
      if found[g] and due_of(found[g]) >= tonumber(due) then return 'duplicate' end
    end
  end
  if in_flight then return 'in_flight' end
  local score = place and place(z, now, tonumber(due)) or due
  local anywhere = next(found)
  for g = 1, groups do
    local old = found[g]
    if is_over(g, id, version) or (anywhere and not old) then
      -- A group that has settled the message does not get it again.
    elseif old and policy == 'debounce' then
      schedule(g, id, due, score)
      redis.call('HSET', h[g], id, set_due(old, tonumber(due), version))
      local charge = redis.call('HGET', a[g], id)
      if charge then redis.call('HSET', a[g], id, charged_due(charge, due)) end
    elseif old and version_of(old) >= version then
      redis.call('HSET', h[g], id, with_later_successor(old, set_due(body, due_of(old), version_of(old))))
      redis.call('HDEL', a[g], id)
    else
      schedule(g, id, due, score)
      redis.call('HSET', h[g], id, with_later_successor(old, body))
      redis.call('HDEL', a[g], id)
      if dead then
        redis.call('ZREM', dz[g], id)
        redis.call('HDEL', dh[g], id)
      end
    end
  end
  if redis.call('ZREM', KEYS[4], id) == 1 then remember_version(KEYS[5], now_us, id, version) end
  if dedup ~= '' then remember_dedup(KEYS[10], KEYS[11], now, dedup, id) end
  return not anywhere and 'stored' or policy == 'replace' and 'replaced' or 'debounced'
end

local answers = {'OK', answer}
-- A record that was handed over is perhaps in several logs: the first of them that is replayed counts.
local function is_done_elsewhere(origin)
  if origin == '' then return false end
  local replayed = tonumber(string.match(redis.call('GET', KEYS[7]) or '0', '^%d+'))
  return replayed >= tonumber(origin) or redis.call('HEXISTS', KEYS[8], origin) == 1
end
local from_elsewhere = false
for i = 5, #ARGV, 7 do
  local number, origin = tonumber(ARGV[i]), ARGV[i + 1]
  local verdict = replay(number <= last or is_done_elsewhere(origin), unpack(ARGV, i + 2, i + 6))
  answers[#answers + 1] = verdict
  if verdict == 'in_flight' or verdict == 'other_key' then break end
  last = math.max(last, number)
  if origin ~= '' then
    redis.call('HSET', KEYS[8], origin, 1)
    redis.call('PEXPIRE', KEYS[8], CALL_KEPT)
    from_elsewhere = true
  end
end
if from_elsewhere then
  local replayed = string.match(redis.call('GET', KEYS[7]) or '0', '^%d+')
  redis.call('SET', KEYS[7], replayed .. ' closed', 'PX', CALL_KEPT)
end
redis.call('SET', KEYS[2], string.format('%.0f', last), 'PX', CALL_KEPT)
if place then remember_places(now) end
if earliest then redis.call('SPUBLISH', KEYS[6], earliest) end
return counted(answers)
