-- redrive: makes dead messages ready again, as if they had just become due and were never tried.
--   KEYS[1] T:<group>:dz  [2] T:<group>:dh  [3] T:<group>:z  [4] T:<group>:h  [5] T:<group>:a  [6] T:wake
--   KEYS[7] T:<group>:m  [8] T:<group>:f  [9] T:gen
--   ARGV[1] time override, us, or ''   then ids
-- Returns {'OK', now us, 1 or 0 for each id} or, with nothing changed, {'ON_ITS_WAY', now us}: one of them is on its way to another
--   topic: call it back first. A repeat finds them gone and answers 0.
local now_us, now_text = time_us(ARGV[1])
local now = math.floor(now_us / 1000)
local answers = {'OK', now_text}
local moved = false
for i = 2, #ARGV do
  if is_on_its_way(KEYS[7], KEYS[8], ARGV[i]) then return {'ON_ITS_WAY', now_text} end
end
for i = 2, #ARGV do
  local id = ARGV[i]
  local value = redis.call('HGET', KEYS[2], id)
  answers[i + 1] = value and 1 or 0
  if value then
    local record = struct.unpack('>I4', value)
    redis.call('HSET', KEYS[4], id, string.sub(value, 5 + record))
    redis.call('ZADD', KEYS[3], now, id)
    redis.call('HSET', KEYS[5], id, '0 ' .. now)
    redis.call('HDEL', KEYS[2], id)
    redis.call('ZREM', KEYS[1], id)
    moved = true
  end
end
if moved then redis.call('SPUBLISH', KEYS[6], now) end
return counted(answers)
