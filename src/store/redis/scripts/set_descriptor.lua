-- set_descriptor: replaces the descriptor of a topic, if it still is the expected one, or removes it.
--   KEYS[1] <prefix>:topic:<topic>   ARGV[1] generation expected, 16 digits, or '' for none
--   ARGV[2] "<generation, 16 digits> <descriptor>", or '' to remove it
-- Returns {'OK', what is in place now, or ''}. A repeat finds its own descriptor in place, or none.
if redis.call('GETRANGE', KEYS[1], 0, 15) == ARGV[1] then
  if ARGV[2] == '' then redis.call('UNLINK', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
end
return {'OK', redis.call('GET', KEYS[1]) or ''}
