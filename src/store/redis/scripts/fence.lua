-- fence: answers what became of a call that was not answered, and makes sure that nothing else ever will.
--   KEYS[1] T:c:<stream>   ARGV[1] number of the call   ARGV[2] which of its messages, from 1
-- Returns {'OK', 1 if the message was set by it or its id was there, 0 if not and no copy of the call ever sets it}. A repeat
-- answers the same. A duplicate of the first message of its dedup key is 0: the replay finds that message, for the journal.
-- The stream of a call that was not answered is never used again, so it can be closed. The number stays: it says which
-- calls Redis has.
local last, answered = string.match(redis.call('GET', KEYS[1]) or '0', '^(%d+) ?(.*)$')
if tonumber(last) >= tonumber(ARGV[1]) then
  local refused, at = {in_flight = true, dead = true, expires = true}, 0
  for verdict in string.gmatch(answered, '%S+') do
    at = at + 1
    if at == tonumber(ARGV[2]) and refused[verdict] then return {'OK', 0} end
    local of_another = string.match(verdict, '^(%d+)[^=]*=')
    if of_another and tonumber(of_another) + 1 == tonumber(ARGV[2]) then return {'OK', 0} end
  end
  return {'OK', 1}
end
if answered ~= 'closed' then end_call(KEYS[1], last, 'closed') end
return {'OK', 0}
