-- Which data a partition has: T:gen is `<generation, 16 digits> <history> <descriptor>`. The history is an id of 25 characters that the
-- partition gets when it is made, and that goes when its data goes. A caller says what it knows.
--   KEYS[1] T:gen   ARGV[1] `<generation, 16 digits> <history>`, with nothing for a history that it does not know
-- `refusal` is nothing if that is so; else what to answer, with nothing changed: {'ANOTHER', '', T:gen or ''} when the history is another
-- one, so that what the caller knows of is not here, or when the caller knows none; {'STALE', ''} when the partition has seen a newer
-- descriptor; {'BEHIND', ''} when it has not seen this one yet, or is not made.
local refusal
do
  local there = redis.call('GETRANGE', KEYS[1], '0', '41')
  if there ~= ARGV[1] then
    if string.sub(there, 18) ~= string.sub(ARGV[1], 18) then
      refusal = {'ANOTHER', '', redis.call('GET', KEYS[1]) or ''}
    else
      refusal = {there > ARGV[1] and 'STALE' or 'BEHIND', ''}
    end
  end
end
