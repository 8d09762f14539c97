-- Whether any message of a group is charged, and whether one may have a successor. Most groups have neither, so it is one question.
--   KEYS[4] T:<group>:a   KEYS[7] T:<group>:n
-- _successor.lua stands behind this line, inside the condition: so a call without successors makes no function of it. The script that
-- uses `parts` ends the condition.
local any = redis.call('EXISTS', KEYS[4], KEYS[7])
local charges = any == 2 or any == 1 and redis.call('EXISTS', KEYS[4]) == 1
local has_successors = any == 2 or any == 1 and not charges
local parts
if has_successors then
