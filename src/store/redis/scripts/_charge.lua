-- The attempts of a message that was tried, as a group keeps them: `<attempts> <due again, ms> <lines of the history>`.
local function charged_due(charge, due)
  return (string.gsub(charge, '^(%S+) ?%S*', '%1 ' .. due, 1))
end
-- The history in a charge with one more attempt, if any: the newest 16. Behind the last one stands its error, if it has one.
local function history_with(charge, failure)
  local lines = string.match(charge or '', '^%S+ %S+ (.*)$') or ''
  if failure == '' then return lines end
  lines = string.gsub(lines, '\n![^\n]*\n$', '\n')
  if select(2, string.gsub(lines, '\n', '')) >= 16 then lines = string.match(lines, '^[^\n]*\n(.*)$') end
  return lines .. failure
end
