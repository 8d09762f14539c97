-- claim_stats: makes a member the one that counts for everybody, for a time, unless another one is; or gives that up.
--   KEYS[1] <prefix>:stats-collector   ARGV[1] member   ARGV[2] ttl, ms, or '' to give it up
-- Returns {'KEPT'} {'TAKEN'} {'HELD', ms left} {'GIVEN'}. A repeat prolongs again and answers KEPT, for nobody else was it in
-- between; giving up again does nothing. A key without a time to live is nobody's: dwell wrote none.
local holder = redis.call('GET', KEYS[1])
if ARGV[2] == '' then
  if holder == ARGV[1] then redis.call('DEL', KEYS[1]) end
  return {'GIVEN'}
end
local left = redis.call('PTTL', KEYS[1])
if holder and holder ~= ARGV[1] and left >= 0 then return {'HELD', left} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {holder == ARGV[1] and 'KEPT' or 'TAKEN'}
