-- What a group keeps of a message that was tried: `<attempts> <due again, ms> <lines of the history>`.
local function charged_due(charge, due)
  return (string.gsub(charge, '^(%S+) ?%S*', '%1 ' .. due, 1))
end
