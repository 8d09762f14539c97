-- cancel: takes a message out of every group in which it waits, and remembers that it did.
--   KEYS[1] T:gen   KEYS[2] T:c:<stream>   KEYS[3] T:x   then for each group T:<group>:z, :h, :a, :dh
--   ARGV[1] as in _history   ARGV[2] valid until, ms   ARGV[3] id   ARGV[4] us that cancelled ids are remembered
--   ARGV[5] how many at most   ARGV[6] version, us   ARGV[7] number of the call, or '' when a log says it again
--   ARGV[8] time override, us, or ''   then the names of the groups
-- Returns {'OK', now us, version of the cancel us or '', 'done' 'in_flight' 'dead' or 'absent' for each group} or, with nothing
--   changed, a refusal of _history, {'LATE', now us} {'GAP', now us}.
-- Repeats and late copies as in push. Only what is in the zset is taken, together with its body, so no reservation can have it.
-- T:x remembers the id and the version; `<id> <group>` beside it is a group of which it was not taken. So a repeat, and who cancels
-- again, finds that it was done, and in which groups; `<id> ` has the version of the cancel that found it, since a log may still have a push from in between.
-- A live cancel is later than what it takes, and takes a successor too. A cancel from a log removes only a message with a lower version, and
-- is remembered also when nothing is there: what it meant may come out of the log behind it.
local now_us, answer = time_us(ARGV[8])
if math.floor(now_us / 1000) > tonumber(ARGV[2]) then return {'LATE', answer} end
if refusal then return refusal end

local x, id, version, is_log = KEYS[3], ARGV[3], tonumber(ARGV[6]), ARGV[7] == ''
local groups = #ARGV - 8
local verdicts, taken, found = {}, false, false
if not is_log then
  local known, answered = begin_call(KEYS[2], ARGV[7])
  if known == 'late' then return {'LATE', answer} end
  if known == 'gap' then return {'GAP', answer} end
  if known == 'repeat' then
    for verdict in string.gmatch(answered, '%S+') do verdicts[#verdicts + 1] = verdict end
    return repeated({'OK', answer, (string.gsub(verdicts[1] or '-', '-', '')), unpack(verdicts, 2)})
  end
end
local function reply(at)
  if not is_log then end_call(KEYS[2], ARGV[7], (at == '' and '-' or at) .. ' ' .. table.concat(verdicts, ' ')) end
  return counted({'OK', answer, at, unpack(verdicts)})
end
local function named(g) return id .. ' ' .. ARGV[8 + g] end
local before = redis.call('ZSCORE', x, id)
for g = 1, groups do
  local z, h, a, dh = KEYS[4 * g], KEYS[4 * g + 1], KEYS[4 * g + 2], KEYS[4 * g + 3]
  local body = redis.call('HGET', h, id)
  verdicts[g] = 'absent'
  if body and is_log and version_of(body) >= version then
    -- A later push is what counts now, and the memory of this cancel would stand against it.
    for other = g, groups do verdicts[other] = 'absent' end
    return reply(before or '')
  elseif body and redis.call('ZSCORE', z, id) then
    verdicts[g], taken = 'done', true
    redis.call('HDEL', a, id)
    local _, successor = parts_of(body)
    if successor and is_log and version_of(successor) >= version then
      -- A log cancels what was there before the successor was pushed.
      redis.call('HSET', h, id, successor)
      redis.call('ZADD', z, due_of(successor), id)
    else
      version = math.max(version, version_of(successor or body) + 1)
      redis.call('ZREM', z, id)
      redis.call('HDEL', h, id)
    end
  elseif body then
    verdicts[g] = 'in_flight'
  elseif redis.call('HEXISTS', dh, id) == 1 then
    verdicts[g] = 'dead'
  elseif before and not redis.call('ZSCORE', x, named(g)) then
    verdicts[g], found = 'done', true
  end
end
if found and not (taken or is_log) then
  redis.call('ZADD', x, 'GT', string.format('%.0f', version), id .. ' ')
  redis.call('PEXPIRE', x, string.format('%.0f', ARGV[4] / 1000))
  return reply(string.format('%.0f', math.max(version, tonumber(before))))
end
if not (taken or is_log) then return reply(before or '') end

local at = string.format('%.0f', math.max(version, tonumber(before or 0)))
redis.call('ZADD', x, at, id)
for g = 1, groups do
  if verdicts[g] == 'done' or is_log then redis.call('ZREM', x, named(g)) else redis.call('ZADD', x, at, named(g)) end
end
-- More than were added, so that it shrinks.
local old = redis.call('ZRANGE', x, '-inf', string.format('%.0f', now_us - ARGV[4]), 'BYSCORE', 'LIMIT', 0, groups + 17)
if #old > 0 then redis.call('ZREM', x, unpack(old)) end
local excess = redis.call('ZCARD', x) - tonumber(ARGV[5])
if excess > 0 then redis.call('ZREMRANGEBYRANK', x, 0, math.min(excess, groups + 17) - 1) end
redis.call('PEXPIRE', x, string.format('%.0f', ARGV[4] / 1000))
return reply(at)
