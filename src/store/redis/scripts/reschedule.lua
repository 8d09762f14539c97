-- reschedule: gives a message another due time in every group in which it waits.
--   KEYS[1] T:gen   KEYS[2] T:c:<stream>   KEYS[3] T:gone   KEYS[4] T:wake   then for each group T:<group>:z, :h, :a, :dh
--   ARGV[1] as in _history   ARGV[2] valid until, ms   ARGV[3] id   ARGV[4] due time, ms
--   ARGV[5] due time that it has to have, ms, or ''   ARGV[6] attempts that it has to have, or ''
--   ARGV[7] time override, us, or ''   ARGV[8] number of the call   ARGV[9] version, us
-- Returns {'OK', now us, 'done' 'in_flight' 'dead' 'absent' 'changed' or 'expires' for each group} or, with nothing changed,
--   a refusal of _history, {'LATE', now us} {'OUTDATED', now us, version us} {'GAP', now us}. With a
--   'changed' or an 'expires', which is before the due time that is asked for, nothing was changed either.
-- A crash before or after leaves all or nothing. Repeats and late copies as in push. A reschedule to the present
-- due time is done already, whatever was expected.
local now_us, answer = time_us(ARGV[7])
if math.floor(now_us / 1000) > tonumber(ARGV[2]) then return {'LATE', answer} end
if refusal then return refusal end
local known, answered = begin_call(KEYS[2], ARGV[8])
if known == 'late' then return {'LATE', answer} end
if known == 'gap' then return {'GAP', answer} end
local verdicts = {}
if known == 'repeat' then
  for verdict in string.gmatch(answered, '%S+') do verdicts[#verdicts + 1] = verdict end
  -- A call that a journal brought back was done.
  if #verdicts == 0 then for _ = 5, #KEYS, 4 do verdicts[#verdicts + 1] = 'done' end end
  return repeated({'OK', answer, unpack(verdicts)})
end

local id, due, version = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[9])
local groups = (#KEYS - 4) / 4
local z, h, a, dh = {}, {}, {}, {}
for g = 1, groups do z[g], h[g], a[g], dh[g] = KEYS[4 * g + 1], KEYS[4 * g + 2], KEYS[4 * g + 3], KEYS[4 * g + 4] end
local waiting, changed = {}, false
for g = 1, groups do
  local body = redis.call('HGET', h[g], id)
  local score = body and redis.call('ZSCORE', z[g], id)
  if body and newest_version_of(body) >= version then
    refuse_call(KEYS[2])
    return {'OUTDATED', answer, string.format('%.0f', newest_version_of(body))}
  elseif score then
    verdicts[g] = 'done'
    local charge = redis.call('HGET', a[g], id)
    local attempts = string.match(charge or '', '^%d+')
    local as_expected = (ARGV[5] == '' or due_of(body) == tonumber(ARGV[5]))
      and (ARGV[6] == '' or tonumber(attempts or 0) == tonumber(ARGV[6]))
    if not as_expected and not (math.floor(tonumber(time_of(score))) == due and due_of(body) == due) then
      verdicts[g], changed = 'changed', true
    elseif expires_at(body) <= due then
      verdicts[g], changed = 'expires', true
    end
    waiting[g] = {body, charge}
  elseif body then
    verdicts[g] = 'in_flight'
  elseif redis.call('HEXISTS', dh[g], id) == 1 then
    verdicts[g] = 'dead'
  else
    verdicts[g] = 'absent'
  end
end
end_call(KEYS[2], ARGV[8], table.concat(verdicts, ' '))
if changed then return counted({'OK', answer, unpack(verdicts)}) end

if next(waiting) then remember_version(KEYS[3], now_us, id, version) end
local earlier = false
for g, found in pairs(waiting) do
  local head = redis.call('ZRANGE', z[g], '0', '0', 'WITHSCORES')
  if due < tonumber(head[2]) then earlier = true end
  redis.call('ZADD', z[g], ARGV[4], id)
  redis.call('HSET', h[g], id, set_due(found[1], due, version))
  if found[2] then redis.call('HSET', a[g], id, charged_due(found[2], ARGV[4])) end
end
if earlier then redis.call('SPUBLISH', KEYS[4], ARGV[4]) end
return counted({'OK', answer, unpack(verdicts)})
