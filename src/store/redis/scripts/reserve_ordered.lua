-- reserve_ordered: the reserve of a topic with ordering: the reservation keeps the place of each id, and answers it.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:z   KEYS[3] T:<group>:h   KEYS[4] T:<group>:a
--   ARGV[1..3] the call sequence   ARGV[4] field of the reservation   ARGV[5] messages at most   ARGV[6] bytes at most
--   ARGV[7] bodies to read at a time
-- Returns {'OK', owner line, earliest due time left ms or '', bodies not in the zset, ids dropped, ids with a blank
--   between them, bodies, attempts, places}, or what the call sequence answers. `attempts` is empty when none are charged.
-- A crash before or after changes nothing or leaves ids and places in the reservation, from where the next epoch's recovery
-- puts them back into their places. A repeat reads the bodies of that reservation again.
local z, h = KEYS[2], KEYS[3]
local ids, bodies, places, dropped, taken = {}, {}, {}, 0, 0
if applied then
  local field = redis.call('HGET', KEYS[1], ARGV[4])
  for id, place in string.gmatch(field or '', '([^ \1]+)\1(%S+)') do
    ids[#ids + 1] = id
    places[#places + 1] = place
    bodies[#bodies + 1] = redis.call('HGET', h, id)
  end
else
  -- All of a millisecond is due once it has begun.
  local next_ms = '(' .. string.format('%.0f', math.floor(now_us / 1000) + 1)
  local due = redis.call('ZRANGE', z, '-inf', next_ms, 'BYSCORE', 'LIMIT', '0', ARGV[5], 'WITHSCORES')
  local chunk, bytes, limit = tonumber(ARGV[7]), 0, tonumber(ARGV[6])
  local count, names, entries = #due / 2, {}, {}
  for i = 1, count do names[i] = due[2 * i - 1] end
  while taken < count and bytes < limit do
    local from = taken
    local read = redis.call('HMGET', h, unpack(names, from + 1, math.min(from + chunk, count)))
    for i = 1, #read do
      local body, id = read[i], names[from + i]
      if body then
        if bytes > 0 and bytes + #body > limit then
          bytes = limit
          break
        end
        bytes = bytes + #body
        ids[#ids + 1] = id
        bodies[#bodies + 1] = body
        places[#places + 1] = due[2 * (from + i)]
        entries[#entries + 1] = id .. '\1' .. due[2 * (from + i)]
      else
        dropped = dropped + 1
      end
      taken = taken + 1
    end
  end
  if taken > 0 then redis.call('ZREMRANGEBYRANK', z, '0', taken - 1) end
  if #ids > 0 then
    redis.call('HSET', KEYS[1], '@', line, ARGV[4], table.concat(entries, ' '))
  else
    redis.call('HSET', KEYS[1], '@', line)
  end
end
local attempts = attempts_of(KEYS[4], ids)
local head = redis.call('ZRANGE', z, '0', '0', 'WITHSCORES')
local unsettled = math.max(0, redis.call('HLEN', h) - redis.call('ZCARD', z))
return {'OK', line, head[2] or '', unsettled, dropped, table.concat(ids, ' '), bodies, attempts, places}
