-- purge_dead_letters: deletes dead messages.
--   KEYS[1] T:<group>:dz  [2] T:<group>:dh  [3] T:<group>:m  [4] T:<group>:f  [5] T:gen   ARGV ids
-- Returns {'OK', version us of each or '' if it was not there} or, with nothing changed, {'ON_ITS_WAY'}: one of them is on its way to
-- another topic: call it back first. A repeat finds them gone.
local answers = {'OK'}
for i = 1, #ARGV do
  if is_on_its_way(KEYS[3], KEYS[4], ARGV[i]) then return {'ON_ITS_WAY'} end
end
for i = 1, #ARGV do
  local value = redis.call('HGET', KEYS[2], ARGV[i])
  answers[i + 1] = ''
  if value then
    answers[i + 1] = string.format('%.0f', dead_version(value))
    redis.call('HDEL', KEYS[2], ARGV[i])
  end
  redis.call('ZREM', KEYS[1], ARGV[i])
end
return counted(answers)
