-- cron_jobs: the cron jobs of a partition.
--   KEYS[1] T:s
-- Returns {'OK', n times (name, '<revision> <last ms> <definition>')}, at most as many as put_cron_job accepts.
-- Changes nothing.
local answer, cursor = {'OK'}, '0'
repeat
  local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', 100)
  cursor = page[1]
  for i = 1, #page[2] do answer[#answer + 1] = page[2][i] end
until cursor == '0'
return answer
