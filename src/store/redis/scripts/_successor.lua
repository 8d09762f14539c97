-- A message and the one that takes its place once it has ended, in one value of T:<group>:h: `the message | its successor | id of a
-- dead letter | its length, 1 byte | length of the successor, 4 bytes big endian`, and 128 is added to the format of the message.
-- T:<group>:n, a zset: id of a message that may have a successor -> when that was looked at last, ms. The id may stay
-- there when the successor leaves.
local FOLLOWED = 128
-- The message alone; its successor as it is stored later, with a version above that of the message; and the id of the message as a
-- dead letter, since its own is that of the successor then. Only the first one if there is no other.
local function parts_of(body)
  local format = string.byte(body, 14) or 0
  if format < FOLLOWED then return body end
  local id, length = struct.unpack('>I1I4', body, #body - 4)
  local at = #body - 5 - id - length
  -- Damaged.
  if at < 24 or length < 24 then return body end
  local version = math.max(struct.unpack('>I7', body, at + 7), struct.unpack('>I7', body, 7) + 1)
  local successor = string.sub(body, at + 1, at + 6) .. struct.pack('>I7', version) .. string.sub(body, at + 14, at + length)
  local first = string.sub(body, 1, 13) .. string.char(format - FOLLOWED) .. string.sub(body, 15, at)
  return first, successor, string.sub(body, at + length + 1, #body - 5)
end
