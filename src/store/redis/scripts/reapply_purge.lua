-- reapply_purge: says a purge again that a journal kept: deletes a page of what a group had before it, if Redis lost the purge.
--   KEYS[1] T:gen   KEYS[2] T:purged   KEYS[3] T:<group>:z  [4] T:<group>:h  [5] T:<group>:a  [6] T:<group>:dz  [7] T:<group>:dh
--   ARGV[1] as in _history   ARGV[2] group   ARGV[3] '1' to delete dead messages too   ARGV[4] version, us
--   ARGV[5] cursor, '0' at first   ARGV[6] time override, us, or ''
-- Returns {'OK', now us, messages that were deleted, next cursor or '0'} or, with nothing changed, a refusal of _history.
-- From the first page on no log brings back what was purged. A repeat of a page, or of all of them, finds nothing. A message that
-- is reserved leaves its id behind, which means nothing without a body. Cursors of the dead messages begin with 'd'.
local now_us, answer = time_us(ARGV[6])
if refusal then return refusal end
local purged, group, version, deleted = KEYS[2], ARGV[2], tonumber(ARGV[4]), 0
local in_dead, cursor = string.match(ARGV[5], '^(d?)(%d+)$')
if ARGV[5] == '0' then
  local said = redis.call('HGET', purged, group)
  if version_of_purge(said) >= version and not string.find(said, 'begun', 1, true) then return counted({'OK', answer, 0, '0'}) end
  remember_purge(purged, group, math.max(version, version_of_purge(said)), ' begun')
end

local z, h = KEYS[3], KEYS[4]
if in_dead == 'd' then z, h = KEYS[6], KEYS[7] end
local page = redis.call('HSCAN', h, cursor, 'COUNT', 100)
for i = 1, #page[2], 2 do
  local id, body = page[2][i], page[2][i + 1]
  if in_dead == 'd' then body = string.sub(body, 5 + struct.unpack('>I4', body)) end
  local _, successor = parts_of(body)
  if successor and version_of(body) <= version and version_of(successor) > version then
    -- It was pushed after the purge.
    redis.call('HSET', h, id, successor)
    redis.call('ZADD', z, due_of(successor), id)
    redis.call('HDEL', KEYS[5], id)
    deleted = deleted + 1
  elseif version_of(body) <= version then
    redis.call('ZREM', z, id)
    redis.call('HDEL', KEYS[5], id)
    deleted = deleted + redis.call('HDEL', h, id)
  end
end
local next_cursor = page[1]
if next_cursor == '0' and in_dead == '' and ARGV[3] == '1' then
  next_cursor = 'd0'
elseif next_cursor == '0' then
  remember_purge(purged, group, purged_at(purged, group), '')
else
  next_cursor = in_dead .. next_cursor
end
return counted({'OK', answer, deleted, next_cursor})
