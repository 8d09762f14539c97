-- settle_late: settles messages of a group that wait, each only if it is as the delivery left it, or was delivered again since and
--   the ack is for that too.
--   KEYS[1] T:gen   KEYS[2] T:c:<stream>   KEYS[3] T:seen   KEYS[4] T:gone   KEYS[5] T:wake
--   KEYS[6] T:<group>:r   KEYS[7] T:<group>:z   KEYS[8] T:<group>:h   KEYS[9] T:<group>:a   KEYS[10] T:<group>:dh
--   KEYS[11] T:<group>:p
--   ARGV[1] as in _history   ARGV[2] valid until, ms   ARGV[3] time override, us, or ''   ARGV[4] number of the call
--   ARGV[5] dedup window, ms   ARGV[6] 1 with ordering, else 0   ARGV[7] group
--   then (id, version us, attempts, due again ms or '' for an ack, line of the history or '',
--   1 if an ack counts after more attempts too, and for what is gone, else 0,
--   1 if the key of the message is paused until it is due again, else 0)
-- Returns {'OK', now us, a letter for each: d done, r done before, g gone, f in flight, o over} or, with nothing changed,
--   a refusal of _history, {'LATE', now us} {'GAP', now us}.
-- A crash before or after leaves all or nothing. Repeats and late copies as in push. Body and id leave together, as in cancel; a
-- successor takes their place.
-- A message on its way to another topic is in flight. After a release nobody owns what a reservation holds: a body without an id in the zset counts as recovery would count it.
-- T:gone has the version of the message that was acked last in a group, so a repeated ack finds that it was done. It also has the
-- version of one that was gone when it was acked, so that no journal brings it back; but that one may be in another topic, as an earlier
-- message of the id may be, so it is not acked.
local now_us, answer = time_us(ARGV[3])
local now = math.floor(now_us / 1000)
if now > tonumber(ARGV[2]) then return {'LATE', answer} end
if refusal then return refusal end
local known, answered = begin_call(KEYS[2], ARGV[4])
if known == 'late' then return {'LATE', answer} end
if known == 'gap' then return {'GAP', answer} end
if known == 'repeat' then return repeated({'OK', answer, answered}) end

local seen, gone, z, h, a = KEYS[3], KEYS[4], KEYS[7], KEYS[8], KEYS[9]
local window, ordered, group = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7]
local line = redis.call('HGET', KEYS[6], '@')
local released = line and string.match(line, '^%d+%.%-/')
local on_its_way = moving_ids(KEYS[6])
local head = tonumber(redis.call('ZRANGE', z, '0', '0', 'WITHSCORES')[2] or math.huge)
local earliest = math.huge

local function settle(id, version, attempts, next_at, failure, redelivered, pauses_key)
  local body = redis.call('HGET', h, id)
  if not body then
    if next_at ~= '' then return 'o' end
    if acked_version(gone, id, group) == version then return 'r' end
    if not redelivered or redis.call('HEXISTS', KEYS[10], id) == 1 then return 'o' end
    remember_version(gone, now_us, id .. ' ' .. group, version)
    return 'g'
  end
  if version_of(body) ~= version then return 'o' end
  local score = redis.call('ZSCORE', z, id)
  if not score and (on_its_way[id] or not released or ordered and next_at ~= '') then return 'f' end
  local charge = redis.call('HGET', a, id)
  local charged = tonumber(string.match(charge or '0', '^%d+'))
  if not score then charged = math.max(1, charged) end
  if charged ~= attempts and not (redelivered and next_at == '' and charged > attempts) then return 'o' end
  if next_at == '' then
    local _, successor = parts_of(body)
    if successor then
      redis.call('HSET', h, id, successor)
      redis.call('ZADD', z, due_of(successor), id)
      earliest = math.min(earliest, due_of(successor))
    else
      redis.call('ZREM', z, id)
      redis.call('HDEL', h, id)
    end
    redis.call('HDEL', a, id)
    if window > 0 then redis.call('ZADD', seen, now + window, id) end
    remember_version(gone, now_us, id .. ' ' .. group .. ' acked', version)
    return 'd'
  end
  local lines = history_with(charge, failure)
  redis.call('HSET', a, id, attempts .. ' ' .. next_at .. (lines == '' and '' or ' ' .. lines))
  -- With ordering it keeps its place, and waits in the memory of its owner.
  if not ordered then
    redis.call('ZADD', z, next_at, id)
    earliest = math.min(earliest, tonumber(next_at))
  end
  local key = pauses_key and key_of(body)
  if key then redis.call('ZADD', KEYS[11], 'GT', next_at, key) end
  return 'd'
end

local letters = {}
for i = 8, #ARGV, 7 do
  local version, attempts, redelivered = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 5] == '1'
  letters[#letters + 1] = settle(ARGV[i], version, attempts, ARGV[i + 3], ARGV[i + 4], redelivered, ARGV[i + 6] == '1')
end
-- More than were added, so that it shrinks.
local old = window > 0 and redis.call('ZRANGE', seen, '-inf', now, 'BYSCORE', 'LIMIT', 0, #letters + 17) or {}
if #old > 0 then redis.call('ZREM', seen, unpack(old)) end
local fates = table.concat(letters)
end_call(KEYS[2], ARGV[4], fates)
if earliest < head then redis.call('SPUBLISH', KEYS[5], string.format('%.0f', earliest)) end
return counted({'OK', answer, fates})
