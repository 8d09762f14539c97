-- The memory of calls. A partition remembers, in a key for each stream, the number of the last call that was applied, and behind
-- it what was answered. A stream has one call out at a time, and continues only after an answer: so the last number is a repeat,
-- a lower one a late copy, the next one is new, and any other finds that Redis lost data.
-- The memory of a stream that is not used is kept for seven days.
local CALL_KEPT = '604800000'

local call_before
-- Begins a call: 'new', 'repeat' with what was answered, 'late' or 'gap'.
local function begin_call(key, seq)
  call_before = redis.call('SET', key, seq, 'PX', CALL_KEPT, 'GET')
  local last, answered = string.match(call_before or '0', '^(%d+) ?(.*)$')
  local ahead = tonumber(seq) - tonumber(last)
  if ahead == 1 and answered ~= 'closed' then return 'new' end
  if ahead > 1 and answered ~= 'closed' then
    -- No copy of it is applied once a journal has brought back the calls before it.
    redis.call('SET', key, last .. ' closed', 'PX', CALL_KEPT)
    return 'gap'
  end
  if call_before then redis.call('SET', key, call_before, 'PX', CALL_KEPT) else redis.call('DEL', key) end
  if answered == 'closed' then return ahead > 1 and 'gap' or 'late' end
  return ahead == 0 and 'repeat' or 'late', answered
end
-- Takes back the beginning of a call that is refused.
local function refuse_call(key)
  if call_before then redis.call('SET', key, call_before, 'PX', CALL_KEPT) else redis.call('DEL', key) end
end
local function end_call(key, seq, answered)
  redis.call('SET', key, seq .. ' ' .. answered, 'PX', CALL_KEPT)
end
