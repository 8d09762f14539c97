-- compare: says what became of a history of a partition, and begins another one in each process of Redis.
--   KEYS[1] T:gen   KEYS[2] T:past: history -> count at its end
--   ARGV[1] history that the caller knows, or ''   ARGV[2] the newest count of it that the caller was answered, 16 digits, or ''
--   ARGV[3] four characters by chance   ARGV[4] time override, us, or ''   ARGV[5] process, 12 characters
-- Returns {'OK', history or '' for a partition without data, count, 1 if the partition lost something that the caller was answered, else 0}.
-- Only calls of the process in which a history began are made in it. So whoever comes first in a process finds at which count the one
-- before it ended, and a change above that is lost, whatever others have changed since. A repeat finds the new history.
-- The past is forgotten after seven days, or 64 processes; then all of it counts as lost.
local there = redis.call('GETRANGE', KEYS[1], '0', '65')
local is_known = ARGV[1] ~= ''
if there == '' then return {'OK', '', '', is_known and 1 or 0} end
local history, count = string.sub(there, 18, 49), string.sub(there, 51)
-- Another version of dwell made it.
if string.find(there, '{', 1, true) then return {'OK', there, '', 0} end
if string.sub(history, 1, 12) ~= ARGV[5] then
  if redis.call('HLEN', KEYS[2]) >= 64 then redis.call('UNLINK', KEYS[2]) end
  redis.call('HSET', KEYS[2], history, count)
  redis.call('PEXPIRE', KEYS[2], '604800000')
  history = history_of(ARGV[5], ARGV[4], ARGV[3])
  redis.call('SETRANGE', KEYS[1], '17', history)
end
local ended = is_known and (ARGV[1] == history and count or redis.call('HGET', KEYS[2], ARGV[1]))
return {'OK', history, count, is_known and (not ended or ended < ARGV[2]) and 1 or 0}
