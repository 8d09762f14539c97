-- purge_dead_letters: deletes dead messages.
--   KEYS[1] T:<group>:dz   KEYS[2] T:<group>:dh   ARGV ids
-- Returns {'OK', version us of each or '' if it was not there}. A repeat finds them gone.
local answers = {'OK'}
for i = 1, #ARGV do
  local value = redis.call('HGET', KEYS[2], ARGV[i])
  answers[i + 1] = ''
  if value then
    local record = #value >= 4 and struct.unpack('>I4', value) or 0
    answers[i + 1] = string.format('%.0f', version_of(string.sub(value, 5 + record, 17 + record)))
    redis.call('HDEL', KEYS[2], ARGV[i])
  end
  redis.call('ZREM', KEYS[1], ARGV[i])
end
return answers
