-- reschedule: gives a message another due time in every group in which it waits.
--   KEYS[1] T:gen   KEYS[2] T:wake   then for each group T:<group>:z, :h, :a, :dh
--   ARGV[1] generation, 16 digits   ARGV[2] valid until, ms   ARGV[3] id   ARGV[4] due time, ms
--   ARGV[5] due time that it has to have, ms, or ''   ARGV[6] attempts that it has to have, or ''
--   ARGV[7] time override, us, or ''
-- Returns {'OK', now us, due time before, ms, or '', 'done' 'in_flight' 'dead' 'absent' 'changed' or 'expires' for each
--   group} or, with nothing changed, {'LATE', now us} {'STALE', now us, descriptor} {'BEHIND', now us}. With a 'changed' or
--   an 'expires', which is before the due time that is asked for, nothing was changed either.
-- A crash before or after leaves all or nothing. A repeat finds the new due time, which is never 'changed'.
local now_us = time_us(ARGV[7])
local answer = string.format('%.0f', now_us)
if math.floor(now_us / 1000) > tonumber(ARGV[2]) then return {'LATE', answer} end
local generation = redis.call('GETRANGE', KEYS[1], 0, 15)
if generation ~= ARGV[1] then
  if generation > ARGV[1] then return {'STALE', answer, redis.call('GET', KEYS[1])} end
  return {'BEHIND', answer}
end

local id, due = ARGV[3], tonumber(ARGV[4])
local groups = (#KEYS - 2) / 4
local verdicts, waiting, changed, was = {}, {}, false, nil
for g = 1, groups do
  local z, h, a, dh = KEYS[4 * g - 1], KEYS[4 * g], KEYS[4 * g + 1], KEYS[4 * g + 2]
  local body = redis.call('HGET', h, id)
  local score = body and redis.call('ZSCORE', z, id)
  if score then
    verdicts[g], was = 'done', was or due_of(body)
    local charge = redis.call('HGET', a, id)
    local attempts = string.match(charge or '', '^%d+')
    local as_expected = (ARGV[5] == '' or due_of(body) == tonumber(ARGV[5]))
      and (ARGV[6] == '' or tonumber(attempts or 0) == tonumber(ARGV[6]))
    if not as_expected and not (math.floor(tonumber(score)) == due and due_of(body) == due) then
      verdicts[g], changed = 'changed', true
    elseif expires_at(body) <= due then
      verdicts[g], changed = 'expires', true
    end
    waiting[g] = {body, charge}
  elseif body then
    verdicts[g] = 'in_flight'
  elseif redis.call('HEXISTS', dh, id) == 1 then
    verdicts[g] = 'dead'
  else
    verdicts[g] = 'absent'
  end
end
was = was and string.format('%.0f', was) or ''
if changed then return {'OK', answer, was, unpack(verdicts)} end

local earlier = false
for g, found in pairs(waiting) do
  local z, h, a = KEYS[4 * g - 1], KEYS[4 * g], KEYS[4 * g + 1]
  local head = redis.call('ZRANGE', z, 0, 0, 'WITHSCORES')
  if due < tonumber(head[2]) then earlier = true end
  redis.call('ZADD', z, ARGV[4], id)
  redis.call('HSET', h, id, due_at(found[1], due))
  if found[2] then redis.call('HSET', a, id, charged_due(found[2], ARGV[4])) end
end
if earlier then redis.call('SPUBLISH', KEYS[2], ARGV[4]) end
return {'OK', answer, was, unpack(verdicts)}
