-- stage: begins a page of dead letters that are forwarded to another topic.
--   KEYS[1] T:<group>:dz  [2] T:<group>:dh  [3] T:<group>:f  [4] T:<group>:m  [5] T:gen
--   ARGV[1] bytes at most   ARGV[2] the stream of the pages of a partition that has none yet   ARGV[3] where they are going, or ''
--   for none   ARGV[4] time override, us, or ''   then ids
-- Returns {'OK', page, stream, where it is going, n times (id, died at ms, dead value)}; without ids when nothing is staged.
-- Nothing leaves the partition before `unstage`: a page is a list of ids in f. One that is being moved is left alone. A repeat, or
-- whoever comes after a crash, is given the same page again, unless all on it has ended meanwhile. Pages of a partition are numbered
-- by the time, and never go back, so that the receiving end can tell a page that it has from one that is new.
local f = KEYS[3]
local page, stream, to = string.match(redis.call('HGET', f, ' ') or '', '^(%d+) (%S+) (.*)$')
if stream == '-' then stream = nil end
local staged = {}
local function add(id, died_at, value)
  staged[#staged + 1], staged[#staged + 2], staged[#staged + 3] = id, died_at, value
end
if redis.call('HLEN', f) > 1 then
  local entries = page_entries(f)
  for i = 1, #entries, 2 do
    local id = entries[i]
    local died_at, value = redis.call('ZSCORE', KEYS[1], id), redis.call('HGET', KEYS[2], id)
    if died_at and value then add(id, died_at, value) end
  end
  if #staged > 0 then return repeated({'OK', page, stream, to, unpack(staged)}) end
  local header = redis.call('HGET', f, ' ')
  redis.call('UNLINK', f)
  redis.call('HSET', f, ' ', header)
end
page, stream, to = string.format('%.0f', math.max((page or 0) + 1, (time_us(ARGV[4])))), stream or ARGV[2], ARGV[3]
local bytes = tonumber(ARGV[1])
for i = 5, to == '' and 0 or #ARGV do
  local id = ARGV[i]
  local died_at, value = redis.call('ZSCORE', KEYS[1], id), redis.call('HGET', KEYS[2], id)
  if died_at and value and redis.call('HEXISTS', KEYS[4], id) == 0 then
    bytes = bytes - #value
    if bytes < 0 and #staged > 0 then break end
    redis.call('HSET', f, id, string.format('%.0f', dead_version(value)))
    add(id, died_at, value)
  end
end
if #staged > 0 then redis.call('HSET', f, ' ', page .. ' ' .. stream .. ' ' .. to) end
return counted({'OK', page, stream, to, unpack(staged)})
