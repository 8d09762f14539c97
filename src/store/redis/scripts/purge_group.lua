-- purge_group: deletes what a group has in a partition, scheduled, ready or reserved, and ends the epoch of its owner.
--   KEYS[1] T:gen   KEYS[2] T:c:<stream>   KEYS[3] T:purged   KEYS[4] T:wake   KEYS[5] T:<group>:z  [6] T:<group>:h
--   [7] T:<group>:r  [8] T:<group>:a  [9] T:<group>:dz  [10] T:<group>:dh  [11] T:<group>:lease
--   [12] T:<group>:f  [13] T:<group>:k  [14] T:<group>:n
--   ARGV[1] as in _history   ARGV[2] valid until, ms   ARGV[3] group   ARGV[4] '1' to delete dead messages too
--   ARGV[5] version, us   ARGV[6] number of the call   ARGV[7] time override, us, or ''
-- Returns {'OK', now us, version of the purge us, messages, dead messages} or, with nothing changed, a refusal of _history,
--   {'LATE', now us} {'GAP', now us} {'OK', now us, '0', '0', '0'}: messages or dead letters are
--   on their way to another topic: call them back first.
-- Repeats and late copies as in push: none deletes what was pushed since. The owner record names no owner, so that every call of
-- the last epoch is refused, and the next epoch has a higher number; until now there may have been deliveries. The version is not below the time, so it is above every message
-- that was answered before.
local now_us, answer = time_us(ARGV[7])
if math.floor(now_us / 1000) > tonumber(ARGV[2]) then return {'LATE', answer} end
if refusal then return refusal end
local known, answered = begin_call(KEYS[2], ARGV[6])
if known == 'late' then return {'LATE', answer} end
if known == 'gap' then return {'GAP', answer} end
if known == 'repeat' then return repeated({'OK', answer, string.match(answered, '^(%d+) (%d+) (%d+)$')}) end
if redis.call('HEXISTS', KEYS[7], 'm') == 1 or ARGV[4] == '1' and redis.call('HLEN', KEYS[12]) > 1 then
  refuse_call(KEYS[2])
  return repeated({'OK', answer, '0', '0', '0'})
end

local version = math.max(tonumber(ARGV[5]), now_us, purged_at(KEYS[3], ARGV[3]) + 1)
local messages, dead = redis.call('HLEN', KEYS[6]), 0
local line = redis.call('HGET', KEYS[7], '@')
redis.call('UNLINK', KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[11], KEYS[13], KEYS[14])
if ARGV[4] == '1' then
  dead = redis.call('HLEN', KEYS[10])
  redis.call('UNLINK', KEYS[9], KEYS[10])
end
if line then redis.call('HSET', KEYS[7], '@', string.format('%s.-/%.0f/%s', string.match(line, '^%d+'), math.ceil(now_us / 1000), answer)) end
remember_purge(KEYS[3], ARGV[3], version, '')
local counts = string.format('%.0f %d %d', version, messages, dead)
end_call(KEYS[2], ARGV[6], counts)
redis.call('SPUBLISH', KEYS[4], 'released')
return counted({'OK', answer, string.match(counts, '^(%d+) (%d+) (%d+)$')})
