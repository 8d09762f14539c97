-- verify: looks at a page of what a partition holds, whether ids and bodies agree, and repairs what does not if asked.
--   KEYS[1] T:<group>:r   [2] T:<group>:z   [3] T:<group>:h   [4] T:<group>:a   [5] T:<group>:dz   [6] T:<group>:dh
--   ARGV[1] where to go on, 'h0' at first: the last letter of the key that is scanned, and its cursor
--   ARGV[2] 'repair', or ''   ARGV[3] time override, us, or ''
-- Returns {'OK', entries looked at, where the next page begins or '', then (id, defect) for each that was found}.
-- A body in no place is nobody's: its owner knows of what is in reservations only, and those are read here in the same
-- moment. So it can be scheduled beside a live owner, due when it was. A repeat finds what is left. T:<group>:k is not looked at: an
-- entry of it whose message is elsewhere means nothing, and is dropped where it is met.
local scanned, cursor = string.match(ARGV[1], '^(%l)(%d+)$')
local now = math.floor(time_us(ARGV[3]) / 1000)
local repair = ARGV[2] == 'repair'
local found = {}
local function report(id, defect)
  found[#found + 1] = id
  found[#found + 1] = defect
  return repair
end

local held
local function is_held(id)
  if not held then
    held = {}
    local from = '0'
    repeat
      local page = redis.call('HSCAN', KEYS[1], from, 'COUNT', 100)
      for i = 1, #page[2], 2 do
        if page[2][i] ~= '@' then
          for entry in string.gmatch(page[2][i + 1], '%S+') do held[string.match(entry, '^[^\1]+')] = true end
        end
      end
      from = page[1]
    until from == '0'
  end
  return held[id]
end

local page, then_scan
if scanned == 'h' then
  page, then_scan = redis.call('HSCAN', KEYS[3], cursor, 'COUNT', 50), 'z'
  for i = 1, #page[2], 2 do
    local id, body = page[2][i], page[2][i + 1]
    if not redis.call('ZSCORE', KEYS[2], id) and not is_held(id) and report(id, 'body_without_id') then
      local due = string.match(redis.call('HGET', KEYS[4], id) or '', '^%d+ (%d+)')
      due = tonumber(due) or (#body >= 6 and struct.unpack('>I6', body)) or now
      redis.call('ZADD', KEYS[2], string.format('%.0f', math.max(now, due)), id)
    end
  end
elseif scanned == 'z' then
  page, then_scan = redis.call('ZSCAN', KEYS[2], cursor, 'COUNT', 200), 'a'
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    if redis.call('HEXISTS', KEYS[3], id) == 0 and report(id, 'id_without_body') then redis.call('ZREM', KEYS[2], id) end
  end
elseif scanned == 'a' then
  page, then_scan = redis.call('HSCAN', KEYS[4], cursor, 'COUNT', 200), 'd'
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    if redis.call('HEXISTS', KEYS[3], id) == 0 and report(id, 'charge_without_body') then redis.call('HDEL', KEYS[4], id) end
  end
elseif scanned == 'd' then
  page, then_scan = redis.call('ZSCAN', KEYS[5], cursor, 'COUNT', 200), 'g'
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    if redis.call('HEXISTS', KEYS[6], id) == 0 and report(id, 'dead_id_without_body') then redis.call('ZREM', KEYS[5], id) end
  end
else
  page = redis.call('HSCAN', KEYS[6], cursor, 'COUNT', 50)
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    if not redis.call('ZSCORE', KEYS[5], id) and report(id, 'dead_body_without_id') then redis.call('ZADD', KEYS[5], now, id) end
  end
end
local next = scanned .. page[1]
if page[1] == '0' then next = then_scan and then_scan .. '0' or '' end
return {'OK', #page[2] / 2, next, unpack(found)}
