-- The id of a history that begins now. By the time of Redis, so that a late copy of a call makes another one than the first did.
local function history_of(process, override, chance)
  return process .. string.format('%016.0f', (time_us(override))) .. chance
end
