-- rate_slots: gives the caller the next slots of a group, in which it may hand messages out.
--   KEYS[1] <prefix>:rate-slots:<topic>:<group>
--   ARGV[1] slots at most   ARGV[2] from one slot to the next, us   ARGV[3] how late the last one may begin, us from now
--   ARGV[4] how long to hold back without a key, us   ARGV[5] time override, us, or ''
-- Returns {'OK', now us, slots given, us from now to the first of them; with none, to the next that could be given}.
-- The key holds when the next slot may begin, so that no two callers get one slot and all slots keep their distance.
-- Without the key (the first time, or Redis lost it) nobody knows which were given: none is, for as long as one that was
-- may be open. A time too far ahead to have been given means that the clock of Redis went back; then likewise.
-- A repeat gives other slots: those of the first answer are lost, and never given twice.
local now = time_us(ARGV[5])
local wanted, spacing, within, hold = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local next = tonumber(redis.call('GET', KEYS[1]) or 'none') or now + hold
if next > now + 2 * hold + spacing then next = now + hold end
next = math.max(next, now)
local given = 0
if next <= now + within then given = math.min(wanted, math.floor((now + within - next) / spacing) + 1) end
redis.call('SET', KEYS[1], string.format('%.0f', next + given * spacing), 'PX', 86400000)
return {'OK', string.format('%.0f', now), given, string.format('%.0f', next - now)}
