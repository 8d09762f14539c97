-- reserve: takes the due prefix of the zset into one reservation. Bodies stay in the hash.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:z   KEYS[3] T:<group>:h   KEYS[4] T:<group>:a
--   ARGV[1..3] the call sequence   ARGV[4] field of the reservation   ARGV[5] messages at most   ARGV[6] bytes at most
--   ARGV[7] bodies to read at a time
-- Returns {'OK', owner line, earliest due time left ms or '', bodies not in the zset and in no page of a move, ids dropped, ids with a blank
--   between them, bodies, attempts} or what the call sequence answers. `attempts` is empty when none are charged.
-- A crash before or after changes nothing or leaves the ids in the reservation, where the next epoch's recovery finds
-- them. A repeat reads the bodies of that reservation again.
local z, h = KEYS[2], KEYS[3]
local ids, bodies, count, dropped, taken = {}, {}, 0, 0, 0
local joined = ''
if applied then
  joined = redis.call('HGET', KEYS[1], ARGV[4]) or ''
  for id in string.gmatch(joined, '%S+') do
    count = count + 1
    ids[count], bodies[count] = id, redis.call('HGET', h, id)
  end
else
  local due = redis.call('ZRANGE', z, '-inf', string.sub('000' .. now_text, 1, -4), 'BYSCORE', 'LIMIT', '0', ARGV[5])
  local n, chunk, bytes, limit = #due, tonumber(ARGV[7]), 0, tonumber(ARGV[6])
  while taken < n and bytes < limit do
    local from = taken
    local read = redis.call('HMGET', h, unpack(due, from + 1, math.min(from + chunk, n)))
    for i = 1, #read do
      local body = read[i]
      if body then
        if bytes > 0 and bytes + #body > limit then
          bytes = limit
          break
        end
        bytes, count = bytes + #body, count + 1
        ids[count], bodies[count] = due[from + i], body
      else
        dropped = dropped + 1
      end
      taken = taken + 1
    end
  end
  if taken > 0 then redis.call('ZREMRANGEBYRANK', z, '0', taken - 1) end
  if count > 0 then
    joined = table.concat(ids, ' ')
    redis.call('HSET', KEYS[1], '@', line, ARGV[4], joined)
  else
    redis.call('HSET', KEYS[1], '@', line)
  end
end
local attempts = attempts_of(KEYS[4], ids)
local head = redis.call('ZRANGE', z, '0', '0', 'WITHSCORES')
local on_its_way = redis.call('HEXISTS', KEYS[1], 'm') == 1 and moving(KEYS[1], z, h) or 0
local unsettled = math.max(0, redis.call('HLEN', h) - redis.call('ZCARD', z) - on_its_way)
return {'OK', line, head[2] or '', unsettled, dropped, joined, bodies, attempts}
