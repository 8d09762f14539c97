-- The fields of a body that scripts read and change; codec.rs has the whole: due time, ms, 8 bytes big endian · version, us, 8 bytes big
-- endian · format · checksum, 4 bytes · pushed at, ms · key, if any · expires at, ms, if it does · the rest. Behind the checksum
-- a number is one byte below 251, or 251, 252 or 253 and 2, 4 or 8 bytes little endian; what may be there has a 0 or a 1 in
-- front, a text its length. The checksum does not cover due time and version. All that is read here stands in the first 310
-- bytes. Versions are below 2^53, so they are exact as numbers.
local function number_at(body, at)
  local first = string.byte(body, at) or 0
  local width = ({[251] = 2, [252] = 4, [253] = 8})[first]
  if not width or #body < at + width then return first, at + 1 end
  return struct.unpack('<I' .. width, body, at + 1), at + 1 + width
end
local function version_of(body)
  return #body >= 16 and struct.unpack('>I8', body, 9) or 0
end
local function pushed_at(body)
  return (number_at(body, 22))
end
-- The key, and where what follows it begins.
local function key_of(body)
  local _, at = number_at(body, 22)
  if string.byte(body, at) ~= 1 then return nil, at + 1 end
  local length, from = number_at(body, at + 1)
  return string.sub(body, from, from + length - 1), from + length
end
local function expires_at(body)
  local _, at = key_of(body)
  if string.byte(body, at) == 1 then return (number_at(body, at + 1)) end
  return math.huge
end
local function due_of(body)
  return #body >= 8 and struct.unpack('>I8', body) or 0
end
local function set_due(body, due, version)
  return struct.pack('>I8', due) .. struct.pack('>I8', version) .. string.sub(body, 17)
end
