-- Compares a pushed body with a stored one: '@<due ms>' of the stored one, with a `k` if it has another key, where keys are to be
-- compared, or a `c` if it has other content; nothing if none is stored. A dead value is the length of its record, 4 bytes, the record,
-- the body. _body.lua and _content.lua stand behind this line, inside the function: so a call without duplicates makes none of their
-- functions, which would cost a push 3 % of what it costs Redis.
local function compared(pushed, there, is_dead, with_key)
