-- fire_cron_job: pushes occurrences of a schedule into the partitions of all groups and marks them as done, all or nothing.
--   KEYS[1] T:gen   KEYS[2] T:s   KEYS[3] T:seen   KEYS[4] T:wake   KEYS[5] T:c:cron.<name>   then for each group T:<group>:z, :h, :dh
--   ARGV[1] as in _history   ARGV[2] name   ARGV[3] revision   ARGV[4] done up to, ms   ARGV[5] done up to then, ms
--   ARGV[6] bodies a partition may hold   ARGV[7] time override, us, or ''   then n times (due ms, id, body), 100 at most
-- Returns {'OK', now us, for each message 1 if it is new, else 0} or, with nothing changed, a refusal of _history, {'EARLY', now us}
--   {'FULL', now us} {'BEFORE', now us, done up to, ms} {'CHANGED', now us}.
-- The mark is in the slot of its messages, so one call writes both: whoever comes second, at once or when the message was
-- long consumed, finds another mark than it names, and pushes nothing. So does a repeat of this very call.
-- The new mark is the number of the call, by which a journal finds that it was kept.
local now_us, answer = time_us(ARGV[7])
local now = math.floor(now_us / 1000)
if refusal and refusal[1] ~= 'BEHIND' then return refusal end
local revision, last, definition = string.match(redis.call('HGET', KEYS[2], ARGV[2]) or '', '^(%d+) (%d+) (.*)$')
if revision ~= ARGV[3] then return {'CHANGED', answer} end
if last ~= ARGV[4] then return {'BEFORE', answer, last} end
if tonumber(ARGV[5]) > now then return {'EARLY', answer} end

local n = (#ARGV - 7) / 3
for g = 6, #KEYS, 3 do
  if redis.call('HLEN', KEYS[g + 1]) + n > tonumber(ARGV[6]) then return {'FULL', answer} end
end
local function is_there(id)
  for g = 6, #KEYS, 3 do
    if redis.call('HEXISTS', KEYS[g + 1], id) == 1 or redis.call('HEXISTS', KEYS[g + 2], id) == 1 then return true end
  end
  local till = redis.call('ZSCORE', KEYS[3], id)
  return till and tonumber(till) > now
end
local new, earliest, woken = {}, nil, false
for i = 8, #ARGV, 3 do
  local due, id, body = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local is_new = not is_there(id)
  new[#new + 1] = is_new and 1 or 0
  if is_new then
    for g = 6, #KEYS, 3 do
      local head = redis.call('ZRANGE', KEYS[g], 0, 0, 'WITHSCORES')[2]
      if not head or tonumber(due) < tonumber(head) then
        woken = true
        earliest = math.min(tonumber(due), earliest or tonumber(due))
      end
      redis.call('ZADD', KEYS[g], due, id)
      redis.call('HSET', KEYS[g + 1], id, body)
    end
  end
end
redis.call('HSET', KEYS[2], ARGV[2], revision .. ' ' .. ARGV[5] .. ' ' .. definition)
redis.call('SET', KEYS[5], ARGV[5], 'PX', '604800000')
if woken then redis.call('SPUBLISH', KEYS[4], string.format('%.0f', earliest)) end
return counted({'OK', answer, unpack(new)})
