-- A dead value is the length of its record, 4 bytes, the record, the body.
local function dead_version(value)
  if not value or #value < 4 then return 0 end
  local record = struct.unpack('>I4', value)
  return version_of(string.sub(value, 5 + record, 17 + record))
end
