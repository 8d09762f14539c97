-- The range of the entries of a key in T:<group>:k, as two bounds.
local function range_of(key) return '[' .. key .. '\0', '(' .. key .. '\1' end
