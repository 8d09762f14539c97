-- restore: brings messages of one partition to the state that a journal says Redis had answered for.
--   KEYS[1] T:gen   KEYS[2] T:x   KEYS[3] T:gone   KEYS[4] T:wake   KEYS[5] T:purged   KEYS[6] T:dedup   KEYS[7] T:dedup-end
--   then for each group T:<group>:z, :h, :a, :dz, :dh, :n   then T:c:<stream> for each call   in a topic with ordering then T:o
--   ARGV[1] as in _history   ARGV[2] number of groups   ARGV[3] time override, us, or ''
--   then n times (groups with a blank between them, or '' for all, id, version us, and due ms, body, index of the call among
--   its keys, number of the call, dedup key or ''; at an end these five are '', but the body is 'acked' if it is one of an ack)
-- Returns {'OK', now us, messages that were changed} or, with nothing changed, a refusal of _history.
-- The messages that a call set are brought back only if the partition does not remember the call, so that Redis lost it: otherwise
-- whatever became of it since is the truth. Of two operations on a message the one with the later version counts, whichever
-- comes first: T:gone remembers what has ended. So journals may be offered in any order and again.
-- The call is remembered as if it had been made, so a repeat finds that it was kept, also when it was consumed.
-- An end that names its groups also ends a dead letter, also one on its way: it was forwarded, or redriven.
-- A dedup key is remembered again, whatever became of its message, unless one that meets it was seen meanwhile.
-- A message comes with the successor that it had, and that takes its place if it has ended.
-- So all that one call set comes in one call of this script, and the calls of a stream come in their order.
local now_us, answer = time_us(ARGV[3])
local now = math.floor(now_us / 1000)
if refusal then return refusal end
local groups = tonumber(ARGV[2])
local z, h, a, dz, dh, n, names = {}, {}, {}, {}, {}, {}, {}
for g = 1, groups do
  z[g], h[g], a[g], dz[g], dh[g], n[g] = unpack(KEYS, 6 * g + 2, 6 * g + 7)
  names[g] = string.match(z[g], '([^:]+):z$')
end
local calls = 7 + 6 * groups
local earliest, changed = nil, 0

local function is_kept(call, seq)
  local last = redis.call('GET', KEYS[calls + call])
  return tonumber(string.match(last or '0', '^%d+')) >= seq
end
-- The version up to which the message is over in a group.
local function ended(g, id)
  local cancelled = tonumber(redis.call('ZSCORE', KEYS[2], id) or 0)
  cancelled = math.max(cancelled, tonumber(redis.call('ZSCORE', KEYS[2], id .. ' ') or 0))
  if cancelled > 0 and redis.call('ZSCORE', KEYS[2], id .. ' ' .. names[g]) then cancelled = 0 end
  return math.max(cancelled, purged_at(KEYS[5], names[g]), ended_version(KEYS[3], id, names[g]))
end
local function schedule(g, id, due)
  local head = redis.call('ZRANGE', z[g], '0', '0', 'WITHSCORES')[2]
  if (not head or tonumber(due) < tonumber(head)) and (not earliest or tonumber(due) < tonumber(earliest)) then earliest = due end
  redis.call('ZADD', z[g], place and place({z[g]}, now, tonumber(due)) or due, id)
  redis.call('HDEL', a[g], id)
end
local function set(g, id, version, due, body)
  local old = redis.call('HGET', h[g], id)
  local dead = not old and redis.call('HGET', dh[g], id)
  local over = ended(g, id)
  local _, successor, dead_id = parts_of(body)
  if successor then
    local is_dead = dead and dead_version(dead) >= version
    if is_dead and over < version_of(successor) then
      -- The message died, and nobody knew that it was followed: its dead letter makes room.
      redis.call('HSET', dh[g], dead_id, dead)
      redis.call('ZADD', dz[g], redis.call('ZSCORE', dz[g], id) or now, dead_id)
      redis.call('HDEL', dh[g], id)
      redis.call('ZREM', dz[g], id)
      dead = false
    end
    if is_dead or over >= version then body, due = successor, string.format('%.0f', due_of(successor)) end
    version = version_of(successor)
  end
  if math.max(old and newest_version_of(old) or 0, dead_version(dead), over) >= version then return false end
  -- The same message stays where it is, and as often as it was tried; its successor is another one.
  if not old or version_of(old) ~= version_of(body) then schedule(g, id, due) end
  redis.call('HSET', h[g], id, body)
  if string.byte(body, 14) >= FOLLOWED then redis.call('ZADD', n[g], now, id) end
  remember_version(KEYS[3], now_us, id, version)
  if dead then
    redis.call('ZREM', dz[g], id)
    redis.call('HDEL', dh[g], id)
  end
  return true
end

local function finish(g, id, version, is_named, is_acked)
  remember_version(KEYS[3], now_us, id .. ' ' .. names[g] .. (is_acked and ' acked' or ''), tonumber(version))
  local old = redis.call('HGET', h[g], id)
  local dead = is_named and not old and redis.call('HGET', dh[g], id)
  if dead and dead_version(dead) <= tonumber(version) then
    redis.call('ZREM', dz[g], id)
    redis.call('HDEL', dh[g], id)
    return true
  end
  if not old or version_of(old) > tonumber(version) then return false end
  local _, successor = parts_of(old)
  if successor and version_of(successor) > tonumber(version) then
    redis.call('HSET', h[g], id, successor)
    schedule(g, id, string.format('%.0f', due_of(successor)))
    return true
  end
  redis.call('ZREM', z[g], id)
  redis.call('HDEL', h[g], id)
  redis.call('HDEL', a[g], id)
  return true
end

local raised = {}
for i = 4, #ARGV, 8 do
  local wanted, id, version, due, body, call, seq, dedup = unpack(ARGV, i, i + 7)
  local is_end = due == ''
  if is_end or not is_kept(tonumber(call), tonumber(seq)) then
    local any = false
    for g = 1, groups do
      if wanted == '' or string.find(' ' .. wanted .. ' ', ' ' .. names[g] .. ' ', 1, true) then
        if is_end then
          any = finish(g, id, version, wanted ~= '', body == 'acked') or any
        else
          any = set(g, id, tonumber(version), due, body) or any
        end
      end
    end
    if any then changed = changed + 1 end
    if dedup ~= '' and not first_of(KEYS[6], dedup) then remember_dedup(KEYS[6], KEYS[7], now, dedup, id) end
    if not is_end then raised[tonumber(call)] = seq end
  end
end
for call, seq in pairs(raised) do
  local closed = string.match(redis.call('GET', KEYS[calls + call]) or '', ' closed$') or ''
  redis.call('SET', KEYS[calls + call], seq .. closed, 'PX', CALL_KEPT)
end
if place then remember_places(now) end
if earliest then redis.call('SPUBLISH', KEYS[4], earliest) end
return counted({'OK', answer, changed})
