-- The count of a partition, as in _history, in scripts whose callers need no history.
--   KEYS[#KEYS] T:gen
local function count_before()
  return redis.call('GETRANGE', KEYS[#KEYS], '50', '65')
end
-- The answer to a call that was applied before, or changes nothing: the count comes behind it.
local function repeated(answers)
  answers[#answers + 1] = count_before()
  return answers
end
-- The answer to a call that is applied now, which raises the count.
local function counted(answers)
  local count = count_before()
  if count ~= '' then
    count = string.format('%016.0f', count + 1)
    redis.call('SETRANGE', KEYS[#KEYS], '50', count)
  end
  answers[#answers + 1] = count
  return answers
end
