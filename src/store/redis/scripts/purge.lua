-- purge: deletes dead messages.
--   KEYS[1] T:<group>:dz   KEYS[2] T:<group>:dh   ARGV ids
-- Returns {'OK', 1 or 0 for each id}. A repeat finds them gone and answers 0.
local answers = {'OK'}
for i = 1, #ARGV do
  redis.call('ZREM', KEYS[1], ARGV[i])
  answers[i + 1] = redis.call('HDEL', KEYS[2], ARGV[i])
end
return answers
