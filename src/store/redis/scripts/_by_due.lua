-- The messages that wait, by due time and then by id. Sorted messages and others are two ranges of one zset, which are merged here.
-- `base` is SORTED for the range of the sorted ones, else 0.
local function score_of(base, ms) return string.format('%.0f', base + ms) end
-- The rank behind a message of this time, whether or not it is still there. Equal times are ordered by id. In a topic with ordering
-- they are ordered by their places: there, when the message is gone, it is the rank of its millisecond.
local function rank_behind(z, base, id, ms)
  local own = redis.call('ZSCORE', z, id)
  if own and math.floor(tonumber(own)) == base + ms then return redis.call('ZRANK', z, id) + 1 end
  local rank = redis.call('ZCOUNT', z, '-inf', '(' .. score_of(base, ms))
  local to = redis.call('ZCOUNT', z, '-inf', score_of(base, ms))
  while rank < to do
    local middle = math.floor((rank + to) / 2)
    if redis.call('ZRANGE', z, middle, middle)[1] <= id then rank = middle + 1 else to = middle end
  end
  return rank
end
local function rank_of_first(z, base, from, id, ms)
  if id ~= '' then return rank_behind(z, base, id, ms) end
  return redis.call('ZCOUNT', z, '-inf', '(' .. score_of(base, from))
end
-- At most `most` messages from two ranks on, the second one among the sorted messages, or nil if there are none: id, time, id, time.
local function by_due(z, rank, sorted_rank, most)
  local page = redis.call('ZRANGE', z, rank, rank + most - 1, 'WITHSCORES')
  if not sorted_rank then return page end
  local sorted, merged, i, j = redis.call('ZRANGE', z, sorted_rank, sorted_rank + most - 1, 'WITHSCORES'), {}, 1, 1
  while #merged < 2 * most do
    local id, at = page[i], page[i] and tonumber(page[i + 1])
    local other, other_at = sorted[j], sorted[j] and sorted[j + 1] - SORTED
    if id and at >= SORTED then id = nil end
    if not (id or other) then break end
    if id and (not other or at < other_at or at == other_at and id < other) then
      merged[#merged + 1], merged[#merged + 2] = id, page[i + 1]
      i = i + 2
    else
      merged[#merged + 1], merged[#merged + 2] = other, time_of(sorted[j + 1])
      j = j + 2
    end
  end
  return merged
end
