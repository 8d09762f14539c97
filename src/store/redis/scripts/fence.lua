-- fence: answers what became of a call that was not answered, and makes sure that nothing else ever will.
--   KEYS[1] T:c:<stream>   ARGV[1] number of the call
-- Returns {'OK', 1 if it was applied, 0 if it was not and no copy of it ever is}. A repeat answers the same.
-- The stream of a call that was not answered is never used again, so it can be closed. The number stays: it says which
-- calls Redis has.
local last, answered = string.match(redis.call('GET', KEYS[1]) or '0', '^(%d+) ?(.*)$')
if tonumber(last) >= tonumber(ARGV[1]) then return {'OK', 1} end
if answered ~= 'closed' then end_call(KEYS[1], last, 'closed') end
return {'OK', 0}
