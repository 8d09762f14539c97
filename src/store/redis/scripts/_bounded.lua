-- The due time that a debounce gives the message that is there: at most so many ms after its first push.
local function bounded(due, max, found)
  for _, old in pairs(found) do
    local latest = pushed_at(old) + max
    if latest < tonumber(due) then due = string.format('%.0f', latest) end
  end
  return due
end
