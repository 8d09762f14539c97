-- wait_marker: writes, so that a WAIT behind it waits for everything that was written before it, by whichever connection.
--   KEYS[1] <prefix>:history:mark, or the same of a node of a cluster
-- Returns {'OK'}. A repeat writes again.
redis.call('SET', KEYS[1], '', 'PX', 60000)
return {'OK'}
