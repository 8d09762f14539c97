-- restore_cron_job: brings a cron job to the state that a journal says Redis had answered for.
--   KEYS[1] T:gen   KEYS[2] T:s   KEYS[3] T:gone
--   ARGV[1] as in _history   ARGV[2] name   ARGV[3] revision, us   ARGV[4] done up to, ms   ARGV[5] definition, or '' if it was deleted
--   ARGV[6] time override, us, or ''
-- Returns {'OK', now us, 1 if that changed something, else 0} or, with nothing changed, a refusal of _history.
-- The newest revision counts, of which a deletion is one, and the latest mark: so journals may be offered in any order and again. A repeat changes
-- nothing.
local now_us, answer = time_us(ARGV[6])
if refusal then return refusal end
local revision = tonumber(ARGV[3])
local there = redis.call('HGET', KEYS[2], ARGV[2])
local before, done = string.match(there or '', '^(%d+) (%d+) ')
before = tonumber(before) or -1
if ARGV[5] == '' then
  remember_version(KEYS[3], now_us, ' ' .. ARGV[2], revision)
  if there and before <= revision then
    redis.call('HDEL', KEYS[2], ARGV[2])
    return counted({'OK', answer, 1})
  end
  return counted({'OK', answer, 0})
end
local deleted = tonumber(redis.call('ZSCORE', KEYS[3], ' ' .. ARGV[2]) or 0)
if before > revision or deleted >= revision then return counted({'OK', answer, 0}) end
if not done or tonumber(done) < tonumber(ARGV[4]) then done = ARGV[4] end
local after = ARGV[3] .. ' ' .. done .. ' ' .. ARGV[5]
redis.call('HSET', KEYS[2], ARGV[2], after)
return counted({'OK', answer, after == there and 0 or 1})
