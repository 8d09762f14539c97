-- The count of a partition, behind _history or _no_history, which have read it.
-- The answer to a call that was applied before, or changes nothing: the count comes behind it.
local function repeated(answers)
  answers[#answers + 1] = string.sub(there, 51)
  return answers
end
-- The answer to a call that is applied now, which raises the count. A partition that is not made counts nothing.
local function counted(answers)
  if there == '' then return repeated(answers) end
  local count = string.format('%016.0f', string.sub(there, 51) + 1)
  redis.call('SETRANGE', gen, '50', count)
  answers[#answers + 1] = count
  return answers
end
