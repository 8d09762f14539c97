-- No order beyond the due times: a score is a due time in ms. Ordered topics use _order.lua instead.
local place = nil
