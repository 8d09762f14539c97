-- The call sequence: the calls of an owner are numbered, and each is repeated unchanged until it is answered.
--   KEYS[1] T:<group>:r      ARGV[1] prev: the owner line the owner saw last, whole
--   ARGV[2] cur: "<epoch>/<seq>/" of this call       ARGV[3] time override, us, or ''
-- prev found: apply, and write cur with a new stamp. cur found: this very call was applied before, so a repeat only
-- reads the answer again. Another epoch or none: the caller owns nothing any more. The same epoch with another number
-- or stamp: newer than cur is a late copy of an old call, to be ignored; anything else means that Redis lost data.
local now_us, now_text = time_us(ARGV[3])
local line = redis.call('HGET', KEYS[1], '@')
local applied = false
if line ~= ARGV[1] then
  local cur = ARGV[2]
  if not line then return {'STALE', ''} end
  if string.sub(line, 1, #cur) == cur then
    applied = true
  else
    local epoch = string.match(cur, '^[^/]*/')
    if string.sub(line, 1, #epoch) ~= epoch then return {'STALE', line} end
    local function seq(of) return tonumber(string.match(of, '/(%d+)/')) end
    if seq(line) > seq(cur) then return {'LATE', line} end
    return {'REWOUND', line}
  end
else
  line = ARGV[2] .. now_text
end
