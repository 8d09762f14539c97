-- describe: replaces the descriptor of a topic, if it still is the expected one.
--   KEYS[1] <prefix>:topic:<topic>   ARGV[1] generation expected, 16 digits, or '' for none
--   ARGV[2] "<generation, 16 digits> <descriptor>"
-- Returns {'OK', what is in place now}. A repeat finds its own descriptor in place.
if redis.call('GETRANGE', KEYS[1], 0, 15) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return {'OK', redis.call('GET', KEYS[1]) or ''}
