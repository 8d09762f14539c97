-- Microseconds since the epoch by Redis' own clock, the one clock of the fleet; a test may override it.
local function time_us(override)
  if override ~= '' then return tonumber(override) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
