-- in_flight: a page of the messages that a reservation holds, reservation by reservation.
--   KEYS[1] T:<group>:r  [2] T:<group>:z  [3] T:<group>:h  [4] T:<group>:a
--   ARGV[1] cursor of the scan, '0' at first   ARGV[2] id to go on after in its step, or ''   ARGV[3] messages at most
--   ARGV[4] bytes at most   ARGV[5] ids to look at, after which no step begins
-- Returns {'OK', cursor or '' at the end, id to go on after or '', n times (id, body, charge or '')}. Changes nothing.
-- The ids of a step are sorted, so that a step that is repeated continues behind what was seen of it. An id that stays in
-- its reservation all the while is listed at least once, as SCAN promises.
local scan, after = ARGV[1], ARGV[2]
local limit, bytes, looks = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local page, count = {'OK', '', ''}, 0
repeat
  local step = redis.call('HSCAN', KEYS[1], scan, 'COUNT', 1)
  local ids = {}
  for f = 1, #step[2], 2 do
    if step[2][f] ~= '@' then
      for entry in string.gmatch(step[2][f + 1], '%S+') do
        local id = string.match(entry, '^[^\1]+')
        if id > after then ids[#ids + 1] = id end
      end
    end
  end
  table.sort(ids)
  looks = looks - #ids - 1
  for i = 1, #ids do
    local body = redis.call('HGET', KEYS[3], ids[i])
    if body and not redis.call('ZSCORE', KEYS[2], ids[i]) then
      if count == limit or bytes <= 0 then
        page[2], page[3] = scan, after
        return page
      end
      count, bytes, after = count + 1, bytes - #body, ids[i]
      page[#page + 1] = ids[i]
      page[#page + 1] = body
      page[#page + 1] = redis.call('HGET', KEYS[4], ids[i]) or ''
    end
  end
  scan, after = step[1], ''
until scan == '0' or looks <= 0
if scan ~= '0' then page[2] = scan end
return page
