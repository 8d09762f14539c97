-- Whether a dead letter is on a page that is being moved or forwarded to another topic: it stays where it is until the page ends.
local function is_on_its_way(m, f, id)
  return redis.call('HEXISTS', m, id) == 1 or redis.call('HEXISTS', f, id) == 1
end
