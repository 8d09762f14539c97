-- Which data a partition has: T:gen is `<generation, 16 digits> <history> <count, 16 digits> <descriptor>`. The history is an id of 32
-- characters: 12 for the process of Redis in which it began, 16 digits for when, in us, and 4 by chance. The partition gets it when it
-- is made, and another one from `compare` in each later process; it goes with the data. The count says how many of the calls whose
-- loss has to be noticed have changed the partition. A caller says which history it knows.
--   KEYS[1] T:gen   ARGV[1] `<generation, 16 digits> <history>`, with nothing for a history that it does not know
-- `refusal` is nil if the partition has both. Otherwise it is the answer, and nothing is changed:
--   {'ANOTHER', ''}: the partition has another history than the caller knows, or only one of the two has one; the caller compares
--   {'STALE', ''}: the partition has seen a newer descriptor
--   {'BEHIND', ''}: the partition has not seen this descriptor yet; or it has no data, and the caller knows no history of it
local refusal
local gen = KEYS[1]
local there = redis.call('GETRANGE', gen, '0', '65')
if string.sub(there, 1, 49) ~= ARGV[1] then
  if string.sub(there, 18, 49) ~= string.sub(ARGV[1], 18) then
    refusal = {'ANOTHER', ''}
  else
    refusal = {string.sub(there, 1, 49) > ARGV[1] and 'STALE' or 'BEHIND', ''}
  end
end
