-- The versions up to which a message is over in a group, behind _tombstones.
local function acked_version(gone, id, group)
  return tonumber(redis.call('ZSCORE', gone, id .. ' ' .. group .. ' acked') or 0)
end
local function ended_version(gone, id, group)
  return math.max(acked_version(gone, id, group), tonumber(redis.call('ZSCORE', gone, id .. ' ' .. group) or 0))
end
