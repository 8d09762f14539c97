-- unsubscribe: deletes what a deleted group left in a partition.
--   KEYS[1] T:gen   KEYS[2] T:purged   then every key of the group in the partition   ARGV[1] group
-- Returns {'OK', 1 if that was deleted, 0 if the group is not leaving, by the descriptor that the partition has seen}.
-- A group that was made again under the name is not leaving, so a copy that arrives late deletes nothing of it. From the
-- descriptor that says it is leaving on, no push writes to these keys and nobody acquires them; an owner finds its line
-- gone. A repeat finds nothing.
local seen = redis.call('GET', KEYS[1])
for _, group in ipairs(seen and cjson.decode(string.sub(seen, 68)).leaving or {}) do
  if group == ARGV[1] then
    redis.call('HDEL', KEYS[2], group)
    redis.call('UNLINK', unpack(KEYS, 3))
    return {'OK', 1}
  end
end
return {'OK', 0}
