-- copy: gives a new group a page of the messages that another group holds, scheduled, ready or in flight.
--   KEYS[1] T:gen   of the source: [2] T:<source>:z [3] T:<source>:h [4] T:<source>:a   of the group: [5] T:<group>:z [6] T:<group>:h [7] T:<group>:n
--   ARGV[1] group   ARGV[2] generation at which it was made   ARGV[3] source   ARGV[4] cursor, '' at first
--   ARGV[5] messages, about
-- Returns {'OK', messages copied, their bytes, next cursor or ''} or {'STALE'}: the partition has not seen that the group is
-- being copied, or has seen that it no longer is.
-- A scan of a hash visits every body that is there from its beginning to its end, whatever else comes and goes, and a body
-- stays in the hash until its message is settled: so what the source holds all the while is copied. Cursors have a meaning
-- only in the process that gave them; in another one (a restart, a failover, a slot that moved) the scan begins anew. Until
-- the descriptor says that the copy is done nothing is handed out, so no copied body leaves the group again, and a repeat,
-- a late call and a scan from the beginning find what is there and leave it alone; afterwards they are STALE.
-- A message is due when its producer said. That is its score in the source, unless the source tried it or holds it now.
local seen = redis.call('GET', KEYS[1])
local descriptor = seen and cjson.decode(string.sub(seen, 68)) or {}
local subscription = (descriptor.subscriptions or {})[ARGV[1]]
if descriptor.deleted or not subscription or subscription.copy_of ~= ARGV[3] or subscription.born ~= tonumber(ARGV[2]) then
  return {'STALE'}
end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local from = string.match(ARGV[4], '^' .. run .. ' (%d+)$') or '0'
local page = redis.call('HSCAN', KEYS[3], from, 'COUNT', ARGV[5])
local copied, bytes = 0, 0
for i = 1, #page[2], 2 do
  local id, body = page[2][i], page[2][i + 1]
  bytes = bytes + #body
  if redis.call('HEXISTS', KEYS[6], id) == 0 then
    local due = redis.call('HEXISTS', KEYS[4], id) == 0 and redis.call('ZSCORE', KEYS[2], id)
    if due then due = time_of(due) end
    if not due then due = #body >= 6 and string.format('%.0f', struct.unpack('>I6', body)) or '0' end
    redis.call('ZADD', KEYS[5], due, id)
    redis.call('HSET', KEYS[6], id, body)
    -- It has a successor; _successor.lua has the form.
    if (string.byte(body, 14) or 0) >= 128 then redis.call('ZADD', KEYS[7], 0, id) end
    copied = copied + 1
  end
end
-- A write in any case, for those who wait until replicas have what was found.
if copied == 0 then redis.call('SET', KEYS[1], seen, 'KEEPTTL') end
return {'OK', copied, bytes, page[1] == '0' and '' or run .. ' ' .. page[1]}
