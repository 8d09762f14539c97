-- Pushes that follow the message of their id. _successor.lua has the form in which the two are stored.

-- A message, alone, with a successor behind it.
local function joined(first, successor, dead_id)
  local format = string.char(string.byte(first, 14) + FOLLOWED)
  return string.sub(first, 1, 13) .. format .. string.sub(first, 15) .. successor .. dead_id .. struct.pack('>I1I4', #dead_id, #successor)
end
-- Whether a stored message has the content of a later push than this one, or is it.
local function is_later(stored, body)
  local at, own = pushed_at(stored), pushed_at(body)
  return at > own or at == own and version_of(stored) >= version_of(body)
end
-- Puts a successor behind a message, instead of the one that it has. Answers whether it had one.
--   n T:<group>:n   h T:<group>:h
-- It looks at two of the other ids in n, so that those leave which have no successor any more.
local function follow(n, h, now, id, body, successor, dead_id)
  local first, before = parts_of(body)
  redis.call('HSET', h, id, joined(first, successor, dead_id))
  for _, other in ipairs(redis.call('ZRANGE', n, 0, 1)) do
    local there = redis.call('HGET', h, other)
    if there and (string.byte(there, 14) or 0) >= FOLLOWED then
      redis.call('ZADD', n, now, other)
    else
      redis.call('ZREM', n, other)
    end
  end
  redis.call('ZADD', n, now, id)
  return before ~= nil
end
-- Whether a group is among those that are being copied: its copy brings it the message that is there elsewhere.
local function is_copied(copied, g) return string.find(copied .. ',', ',' .. g .. ',', 1, true) ~= nil end
-- The state in which a push that follows finds an id in a group: 'stored' if it is not there, 'behind' if the message is in flight
-- or has a successor, 'on_its_way' if it is being moved to another topic, 'other_key', or 'duplicate' if it waits or is dead. And the message.
--   z, h, dh, m T:<group>:z, :h, :dh and :m
local function found_to_follow(z, h, dh, m, id, body)
  local old = redis.call('HGET', h, id)
  if not old then return redis.call('HEXISTS', dh, id) == 1 and 'duplicate' or 'stored' end
  if key_of(old) ~= key_of(body) then return 'other_key' end
  if redis.call('ZSCORE', z, id) then return string.byte(old, 14) >= FOLLOWED and 'behind' or 'duplicate', old end
  return redis.call('HEXISTS', m, id) == 1 and 'on_its_way' or 'behind', old
end
