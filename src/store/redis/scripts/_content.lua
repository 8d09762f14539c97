-- The rest of `compared`, which _compared.lua begins.
  -- The content of a body, attachment and payload, and how many bytes of it are the attachment. It stands behind all that may be in a
  -- body; codec.rs has the forms. Nothing is looked for past the end of a body that no dwell wrote.
  local function content_of(body)
    local format, at = string.byte(body, 14), KEY_AT
    if format == BARE then return string.sub(body, at), 0 end
    local function skip_number() at = select(2, number_at(body, at)) end
    local function skip_text()
      local length, from = number_at(body, at)
      at = from + length
    end
    local function skip_any(skip)
      at = at + 1
      if string.byte(body, at - 1) == 1 then skip() end
    end
    local function skip_trace()
      at = at + 25
      skip_any(skip_text)
    end
    local function skip_dedup()
      skip_text()
      skip_number()
    end
    local function skip_error()
      skip_any(skip_text)
      skip_text()
      skip_any(skip_text)
    end
    local function skip_source()
      for _ = 1, 4 do skip_text() end
      skip_number()
      skip_number()
      skip_any(skip_error)
    end
    skip_any(skip_text)
    skip_any(skip_number)
    skip_any(skip_number)
    skip_any(skip_text)
    local pairs_of_meta, from = number_at(body, at)
    at = from
    while pairs_of_meta > 0 and at <= #body do
      skip_text()
      skip_text()
      pairs_of_meta = pairs_of_meta - 1
    end
    if format ~= 1 then at = at + 1 end
    local attachment = 0
    if format == 4 then
      skip_trace()
    elseif format == 7 or format == 11 then
      skip_any(skip_trace)
      skip_any(skip_dedup)
      if format == 7 then
        skip_any(skip_source)
      else
        skip_source()
        skip_number()
      end
      attachment, at = number_at(body, at)
    end
    return string.sub(body, at), attachment
  end
  if there and is_dead then there = #there >= 4 and string.sub(there, 5 + struct.unpack('>I4', there)) end
  if not there or #there < KEY_AT - 1 then return '' end
  there = parts_of(there)
  local said = '@' .. string.format('%.0f', due_of(there))
  if with_key and key_of(there) ~= key_of(pushed) then return said .. 'k' end
  local content, attachment = content_of(there)
  local own_content, own_attachment = content_of(pushed)
  return content == own_content and attachment == own_attachment and said or said .. 'c'
end
