-- What scripts read and change of a body; codec.rs has the whole: due time, ms, 8 bytes big endian · version · checksum, 4
-- bytes · pushed at, ms · key, if any · expires at, ms, if it does · the rest. Behind the checksum a number is one byte below
-- 251, or 251, 252 or 253 and 2, 4 or 8 bytes little endian; what may be there has a 0 or a 1 in front, a text its length.
-- The checksum does not cover the due time. All that is read here stands in the first 300 bytes.
local function number_at(body, at)
  local first = string.byte(body, at) or 0
  local width = ({[251] = 2, [252] = 4, [253] = 8})[first]
  if not width or #body < at + width then return first, at + 1 end
  return struct.unpack('<I' .. width, body, at + 1), at + 1 + width
end
local function pushed_at(body)
  return (number_at(body, 14))
end
local function expires_at(body)
  local _, at = number_at(body, 14)
  if string.byte(body, at) == 1 then
    local length
    length, at = number_at(body, at + 1)
    at = at + length
  else
    at = at + 1
  end
  if string.byte(body, at) == 1 then return (number_at(body, at + 1)) end
  return math.huge
end
local function due_of(body)
  return #body >= 8 and struct.unpack('>I8', body) or 0
end
local function due_at(body, due)
  return struct.pack('>I8', due) .. string.sub(body, 9)
end
