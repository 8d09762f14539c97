-- The entries of a page that is on its way to another topic: a list of id, value, id, value; its header is left out.
local function page_entries(key)
  local entries, seen, cursor = {}, { [' '] = true }, '0'
  repeat
    local some = redis.call('HSCAN', key, cursor, 'COUNT', 250)
    cursor = some[1]
    for i = 1, #some[2], 2 do
      if not seen[some[2][i]] then
        seen[some[2][i]] = true
        entries[#entries + 1], entries[#entries + 2] = some[2][i], some[2][i + 1]
      end
    end
  until cursor == '0'
  return entries
end
