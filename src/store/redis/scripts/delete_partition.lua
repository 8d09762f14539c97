-- delete_partition: deletes what a deleted topic left in a partition.
--   KEYS[1] T:gen   then every other key of the partition but T:past, which expires by itself
--   ARGV[1] generation of the tombstone, 16 digits
-- Returns {'OK', 1 if that was deleted, 0 if the partition has another descriptor by now}.
-- A topic that was made again under the name has a newer generation, so a copy that arrives late deletes nothing of it.
-- A repeat finds nothing.
if redis.call('GETRANGE', KEYS[1], 0, 15) ~= ARGV[1] then return {'OK', 0} end
redis.call('UNLINK', unpack(KEYS, 2))
return {'OK', 1}
