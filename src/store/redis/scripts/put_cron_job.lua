-- put_cron_job: makes a schedule, or changes the version of it that its author saw.
--   KEYS[1] T:gen   KEYS[2] T:s   KEYS[3] T:gone
--   ARGV[1] as in _history   ARGV[2] name   ARGV[3] revision that was seen, us, or ''   ARGV[4] revision that it becomes, us
--   ARGV[5] done up to, ms, or '' to keep what is there   ARGV[6] definition   ARGV[7] cron jobs at most
-- Returns {'OK', done up to then, ms} or, with nothing changed, a refusal of _history, {'CHANGED'} {'FULL'} {'OUTDATED', revision of what is
--   there, or of its deletion, which is not lower than that which it becomes, us}.
-- A repeat finds its own revision and answers OK. The time up to which it is done never goes back.
if refusal and refusal[1] ~= 'BEHIND' then return refusal end
local there = redis.call('HGET', KEYS[2], ARGV[2])
local revision, last, definition = string.match(there or '', '^(%d+) (%d+) (.*)$')
if revision == ARGV[4] and definition == ARGV[6] then return repeated({'OK', last}) end
if (revision or '') ~= ARGV[3] then return {'CHANGED'} end
local newest = math.max(tonumber(revision) or 0, tonumber(redis.call('ZSCORE', KEYS[3], ' ' .. ARGV[2]) or 0))
if newest >= tonumber(ARGV[4]) then return {'OUTDATED', string.format('%.0f', newest)} end
if not there and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[7]) then return {'FULL'} end
local done = ARGV[5]
if done == '' or tonumber(done) < tonumber(last or 0) then done = last end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4] .. ' ' .. done .. ' ' .. ARGV[6])
return counted({'OK', done})
