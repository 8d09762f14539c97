-- The messages of a page that is on its way to another topic: the reservation 'm' lists their ids, so nobody reserves them, and
-- their bodies stay in the hash. A page of dead messages leaves 'm' empty. `move_out` writes it, `move_done` removes it.
local function moving_ids(r)
  local ids = {}
  for id in string.gmatch(redis.call('HGET', r, 'm') or '', '%S+') do ids[id] = true end
  return ids
end
-- How many of them only that page holds: a restore may have ended one, or scheduled it again.
local function moving(r, z, h)
  local count = 0
  for id in pairs(moving_ids(r)) do
    if redis.call('HEXISTS', h, id) == 1 and not redis.call('ZSCORE', z, id) then count = count + 1 end
  end
  return count
end
