-- leave_group: removes a member from its group.
--   KEYS[1] {<prefix>:members-<slot>}:<topic>:<group>   KEYS[2] the same with ':state'
--   ARGV[1] member   ARGV[2] channel of the group
-- Returns {'OK'}. A repeat does nothing.
redis.call('HDEL', KEYS[2], ARGV[1])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then redis.call('SPUBLISH', ARGV[2], 'left') end
return {'OK'}
