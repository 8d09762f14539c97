-- T:purged, a hash: group -> version, us, of its last purge, and ' begun' behind it while a journal says the purge again; ' ' ->
-- the highest of them. Messages of this version or a lower one are gone from the group, whichever log has them. It is kept for
-- seven days after the last purge.
local function version_of_purge(said)
  return said and tonumber(string.match(said, '^%d+')) or 0
end
local function purged_at(purged, group)
  return version_of_purge(redis.call('HGET', purged, group))
end
-- The last purge of any group: a live push goes above it.
local function last_purge(purged)
  return purged_at(purged, ' ')
end
local function remember_purge(purged, group, version, state)
  local last = string.format('%.0f', math.max(version, last_purge(purged)))
  redis.call('HSET', purged, ' ', last, group, string.format('%.0f', version) .. state)
  redis.call('PEXPIRE', purged, CALL_KEPT)
end
