-- The version of the last change of a message or of its successor.
local function newest_version_of(body)
  local first, successor = parts_of(body)
  return struct.unpack('>I7', successor or first, 7)
end
