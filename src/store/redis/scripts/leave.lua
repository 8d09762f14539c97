-- leave: says that a member leaves its group.
--   KEYS[1] <prefix>:members:<topic>:<group>   ARGV[1] member   ARGV[2] channel for leaves
-- Returns {'OK'}. A repeat does nothing.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then redis.call('SPUBLISH', ARGV[2], 'left') end
return {'OK'}
