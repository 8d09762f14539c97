-- pause_key: makes the messages of a key wait until a time, or no longer.
--   KEYS[1] T:gen   KEYS[2] T:c:<stream>   KEYS[3] T:<group>:p
--   ARGV[1] as in _history   ARGV[2] valid until, ms   ARGV[3] key   ARGV[4] until, ms, or '' for no longer
--   ARGV[5] paused keys at most   ARGV[6] number of the call   ARGV[7] time override, us, or ''
-- Returns {'OK', now us, 'done' or, with nothing changed, 'full'} or, with nothing changed, a refusal of _history, {'LATE', now us}
--   {'GAP', now us}.
-- A crash before or after leaves all or nothing. Repeats and late copies as in push. Pauses that are over leave here.
local now_us, answer = time_us(ARGV[7])
local now = math.floor(now_us / 1000)
if now > tonumber(ARGV[2]) then return {'LATE', answer} end
if refusal then return refusal end
local known = begin_call(KEYS[2], ARGV[6])
if known == 'late' then return {'LATE', answer} end
if known == 'gap' then return {'GAP', answer} end
if known == 'repeat' then return repeated({'OK', answer, 'done'}) end
local paused, key, till = KEYS[3], ARGV[3], ARGV[4]
redis.call('ZREMRANGEBYSCORE', paused, '-inf', now)
if till == '' then
  redis.call('ZREM', paused, key)
elseif redis.call('ZSCORE', paused, key) or redis.call('ZCARD', paused) < tonumber(ARGV[5]) then
  redis.call('ZADD', paused, till, key)
else
  refuse_call(KEYS[2])
  return repeated({'OK', answer, 'full'})
end
return counted({'OK', answer, 'done'})
