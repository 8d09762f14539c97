-- recover: schedules again a page of what older epochs hold reserved.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:z   KEYS[3] T:<group>:h   KEYS[4] T:<group>:a   KEYS[5] T:<group>:k
--   ARGV[1] epoch   ARGV[2] ids at most   ARGV[3] time override, us, or ''
-- Returns {'OK', now us, messages, 1 if there may be more, bodies in no place or ids without body, 1 if a page of a move is on its
--   way, 1 if messages are sorted} or {'STALE', now us}. Such a page is nobody's epoch: it is called back.
-- An id whose body is there was perhaps handed out, so one attempt is charged unless more were. An id without body was
-- acked; an id in the zset was acked and then pushed again, and stays where it is. The field shrinks in the same call that moves its ids, so a repeat finds only what is left:
-- that there was something is known from acquire. An id that has its place with it, in a topic with ordering, goes back there,
-- and keeps the time of its next attempt. A place before the due time is that of an earlier message of the id, which was
-- acked; this one is in another reservation.
local now_us, answer = time_us(ARGV[3])
local line = redis.call('HGET', KEYS[1], '@')
if not line or string.match(line, '^[^/]*') ~= ARGV[1] then return {'STALE', answer} end
local now = math.floor(now_us / 1000)
local own = ARGV[1] .. '.'
local left, moved, has_sorted = tonumber(ARGV[2]), 0, redis.call('EXISTS', KEYS[5])

local function move(entry)
  local id, place = string.match(entry, '^([^\1]+)\1?(.*)$')
  local body = place == '' and redis.call('HEXISTS', KEYS[3], id) == 1 or place ~= '' and redis.call('HGET', KEYS[3], id)
  if not body then
    redis.call('HDEL', KEYS[4], id)
  elseif place ~= '' and #body >= 6 and tonumber(place) < struct.unpack('>I6', body) then
    return
  elseif redis.call('ZADD', KEYS[2], 'NX', place ~= '' and place or now, id) == 1 then
    local charged, history = string.match(redis.call('HGET', KEYS[4], id) or '', '^(%d+) ?%S*(.*)$')
    charged = tonumber(charged or 0)
    if place == '' or charged == 0 then
      redis.call('HSET', KEYS[4], id, math.max(1, charged) .. ' ' .. now .. (history or ''))
    end
    moved = moved + 1
  end
end

local cursor = '0'
repeat
  local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', 100)
  cursor = page[1]
  local fields = page[2]
  for f = 1, #fields, 2 do
    local name = fields[f]
    if name ~= '@' and name ~= 'm' and string.sub(name, 1, #own) ~= own then
      if left == 0 then return {'OK', answer, moved, 1, 0, 0, has_sorted} end
      local rest = {}
      for entry in string.gmatch(fields[f + 1], '%S+') do
        if left > 0 then
          move(entry)
          left = left - 1
        else
          rest[#rest + 1] = entry
        end
      end
      if #rest > 0 then
        redis.call('HSET', KEYS[1], name, table.concat(rest, ' '))
      else
        redis.call('HDEL', KEYS[1], name)
      end
    end
  end
until cursor == '0'
if left == 0 then return {'OK', answer, moved, 1, 0, 0, has_sorted} end
local is_moving = redis.call('HEXISTS', KEYS[1], 'm')
local on_its_way = is_moving == 1 and moving(KEYS[1], KEYS[2], KEYS[3]) or 0
return {'OK', answer, moved, 0, math.abs(redis.call('HLEN', KEYS[3]) - redis.call('ZCARD', KEYS[2]) - on_its_way), is_moving,
  has_sorted}
