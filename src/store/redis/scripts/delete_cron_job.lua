-- delete_cron_job: deletes a cron job, and remembers when that was, so that no journal brings it back.
--   KEYS[1] T:gen   KEYS[2] T:s   KEYS[3] T:gone
--   ARGV[1] as in _history   ARGV[2] name   ARGV[3] revision of the deletion, us   ARGV[4] time override, us, or ''
-- Returns {'OK', now us, 1 if it was there, else 0, revision of its deletion, which is above that of the cron job, or '' if none is
--   remembered} or, with nothing changed, a refusal of _history.
-- A repeat finds none, and answers the revision that is remembered.
local now_us, answer = time_us(ARGV[4])
if refusal and refusal[1] ~= 'BEHIND' then return refusal end
local there = redis.call('HGET', KEYS[2], ARGV[2])
if not there then return repeated({'OK', answer, 0, redis.call('ZSCORE', KEYS[3], ' ' .. ARGV[2]) or ''}) end
local before = tonumber(string.match(there, '^(%d+) ')) or 0
local revision = string.format('%.0f', math.max(tonumber(ARGV[3]), before + 1))
redis.call('HDEL', KEYS[2], ARGV[2])
remember_version(KEYS[3], now_us, ' ' .. ARGV[2], tonumber(revision))
return counted({'OK', answer, 1, revision})
