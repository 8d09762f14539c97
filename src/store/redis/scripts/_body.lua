-- The fields of a body that scripts read and change; codec.rs has the whole: due time, ms, 6 bytes big endian · version, us, 7 bytes
-- big endian · format · checksum, 4 bytes · pushed at, ms, 6 bytes big endian · key, if any · expires at, ms, if it does · the
-- rest. Format 8 has nothing behind the time of the push but the payload. From the key on a number is one byte below 251, or 251,
-- 252 or 253 and 2, 4 or 8 bytes little endian; what may be there has a 0 or a 1 in front, a text its length. The checksum does
-- not cover due time and version. All that is read here stands in the first 310 bytes. Versions are below 2^53, so they are exact
-- as numbers.
local KEY_AT, BARE = 25, 8
local function number_at(body, at)
  local first = string.byte(body, at) or 0
  local width = ({[251] = 2, [252] = 4, [253] = 8})[first]
  if not width or #body < at + width then return first, at + 1 end
  return struct.unpack('<I' .. width, body, at + 1), at + 1 + width
end
local function version_of(body)
  return #body >= 13 and struct.unpack('>I7', body, 7) or 0
end
local function pushed_at(body)
  return #body >= 24 and struct.unpack('>I6', body, 19) or 0
end
-- The key, and where what follows it begins.
local function key_of(body)
  -- 128 is added if the message has a successor; _successor.lua has the form.
  if (string.byte(body, 14) or 0) % 128 == BARE then return nil end
  if string.byte(body, KEY_AT) ~= 1 then return nil, KEY_AT + 1 end
  local length, from = number_at(body, KEY_AT + 1)
  return string.sub(body, from, from + length - 1), from + length
end
local function expires_at(body)
  local _, at = key_of(body)
  if at and string.byte(body, at) == 1 then return (number_at(body, at + 1)) end
  return math.huge
end
local function due_of(body)
  return #body >= 6 and struct.unpack('>I6', body) or 0
end
local function set_due(body, due, version)
  return struct.pack('>I6', due) .. struct.pack('>I7', version) .. string.sub(body, 14)
end
