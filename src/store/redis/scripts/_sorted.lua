-- Sorted messages. The owner of a fair group gives due messages back that have to wait for those of other keys. They stay in
-- T:<group>:z, with the score SORTED + due time, ms, so that they are found there as all that waits is, behind all that is not
-- sorted. No due time reaches SORTED: 2^42 ms is in the year 2109, and nothing is due so late. T:<group>:k, a zset without scores,
-- has an entry for each: `<key, if any> NUL <due, ms, 13 digits><id>`. No key has a control character, so the entries of a key
-- are one range, oldest first. An entry counts only while the message has the score that it says: who takes a message out of
-- T:<group>:z, or gives it another score, leaves the entry, and it is dropped where it is met.
local SORTED, SORTED_FROM = 4398046511104, '4398046511104'
-- The due time of a score, as text.
local function time_of(score)
  if tonumber(score) < SORTED then return score end
  return string.format('%.0f', tonumber(score) - SORTED)
end
