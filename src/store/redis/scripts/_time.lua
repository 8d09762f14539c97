-- Microseconds since the epoch by Redis' own clock, the one clock of the fleet, as a number and as a text; a test may override it.
-- Redis prints each number that is an argument of a command, which costs as much as a small command: so arguments are texts
-- where they can be.
local function time_us(override)
  local text = override
  if text == '' then
    local t = redis.call('TIME')
    text = t[1] .. string.sub('00000' .. t[2], -6)
  end
  return tonumber(text), text
end
