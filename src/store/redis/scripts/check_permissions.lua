-- check_permissions: looks which of the commands of the other scripts the user may not call on dwell's keys.
--   ARGV[1] a key of the store, which is a channel too   ARGV[2] a key of a partition, likewise
-- Returns {'OK', command...}: those that are refused. Changes nothing: Redis looks at permissions first, and then refuses
-- to write in this script. Without this look a script could be refused in its middle, when half of it is done.
local refused = {'OK'}
local function try(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  local why = type(answer) == 'table' and answer.err or ''
  if string.find(why, 'executing the script', 1, true) or string.find(why, 'ACL failure', 1, true) then
    refused[#refused + 1] = string.lower(command) .. ' on ' .. key
  end
end
for _, key in ipairs(ARGV) do
  for _, command in ipairs({
    'GET', 'DEL', 'UNLINK', 'EXISTS', 'PTTL', 'HLEN', 'ZCARD', 'SCARD', 'SMEMBERS', 'INFO'
  }) do try(command, key) end
  for _, command in ipairs({
    'SET', 'PEXPIRE', 'HGET', 'HDEL', 'HEXISTS', 'HMGET', 'HSCAN', 'ZMSCORE', 'ZRANK', 'ZREM', 'ZSCAN', 'ZSCORE', 'SADD',
    'SREM', 'SPUBLISH'
  }) do try(command, key, '0') end
  for _, command in ipairs({
    'GETRANGE', 'SETRANGE', 'HSET', 'ZADD', 'ZCOUNT', 'ZLEXCOUNT', 'ZRANGE', 'ZREMRANGEBYRANK', 'ZREMRANGEBYSCORE'
  }) do try(command, key, '0', '0') end
end
return refused
