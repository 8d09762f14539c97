-- The attempts that are charged to reserved messages, each with when it is due again; empty when none are charged at all. Their history stays
-- where it is.
local function attempts_of(a, ids)
  if #ids == 0 or redis.call('EXISTS', a) == 0 then return {} end
  local attempts = redis.call('HMGET', a, unpack(ids))
  for i = 1, #attempts do
    if attempts[i] then attempts[i] = string.match(attempts[i], '^%S+ ?%S*') end
  end
  return attempts
end
