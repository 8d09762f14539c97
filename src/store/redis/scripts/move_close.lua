-- move_close: closes a partition to a page of a move that is called back: no copy of the page is placed here from now on.
--   KEYS[1] T:moved   ARGV[1] stream of the page   ARGV[2] page
-- Returns {'OK', 1 if it was placed before}. A repeat is answered the same.
local last, closed = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '0', '^(%d+) ?(.*)$')
if tonumber(last) >= tonumber(ARGV[2]) then
  return {'OK', tonumber(last) == tonumber(ARGV[2]) and closed == '' and 1 or 0}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' closed')
return {'OK', 0}
