-- owner_record: looks who owns a partition.
--   KEYS[1] T:<group>:r   KEYS[2] T:<group>:lease
-- Returns {'OK', owner line or '', member that holds the lease or ''}. Changes nothing.
return {'OK', redis.call('HGET', KEYS[1], '@') or '', redis.call('GET', KEYS[2]) or ''}
