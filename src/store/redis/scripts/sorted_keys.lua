-- sorted_keys: a page of the keys that have sorted messages, and how many.
--   KEYS[1] T:<group>:k   ARGV[1] keys at most   ARGV[2] the key to start after, '' for the messages without a key, or nothing
-- Returns {'OK', 1 if there is more, n times (key, or '' for the messages without a key; entries)}. Changes nothing.
-- Entries whose message is elsewhere are counted too, until a reservation meets them.
local k, most = KEYS[1], tonumber(ARGV[1])
local answer, from = {'OK', 0}, '-'
local function jump_behind(key) from = '[' .. key .. '\1' end
if ARGV[2] then jump_behind(ARGV[2]) end
local first = redis.call('ZRANGE', k, from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
while first do
  if #answer == 2 + 2 * most then
    answer[2] = 1
    break
  end
  local key = string.match(first, '^[^%z]*')
  answer[#answer + 1], answer[#answer + 2] = key, redis.call('ZLEXCOUNT', k, range_of(key))
  jump_behind(key)
  first = redis.call('ZRANGE', k, from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
end
return answer
