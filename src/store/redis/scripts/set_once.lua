-- set_once: a text that the first who offers one sets for good. Also in a full Redis: nothing is drained without the receipt key.
--   KEYS[1] <prefix>:receipt-key
--   ARGV[1] the text that is offered
-- Returns {the text that is there}. A repeat returns the same.
local there = redis.call('GET', KEYS[1])
if not there then
  redis.call('SET', KEYS[1], ARGV[1])
end
return {there or ARGV[1]}
