-- Reads a part of a stream, at most some 4 MiB of it.
--
-- KEYS: fence, stream.
-- ARGV: run id, least epoch, 'XRANGE' or 'XREVRANGE', its two ends, its count, '1' to begin an epoch if there is none,
--   the milliseconds to keep a stream that was begun, or '0' for ever.
-- Reply: the newest id, or '' without a stream, or '!' if it cannot be used; the entries. Or the word fenced.
if not is_fenced(KEYS[1], ARGV[1], ARGV[2]) then return 'fenced' end
local key, least = KEYS[2], tonumber(ARGV[2])
local epoch, offset, err = last_of(key)
if err then return { '!', {} } end
if not epoch or epoch < least then
  if ARGV[7] ~= '1' then return { '', {} } end
  local new = begin_epoch(key, least, epoch or 0)
  keep_for(key, ARGV[8], true)
  return { new .. '-0', {} }
end
local entries, bytes, left, first = {}, 0, tonumber(ARGV[6]), ARGV[4]
while left > 0 and bytes < 4194304 do
  local count = math.min(left, 16)
  local part = redis.call(ARGV[3], key, first, ARGV[5], 'COUNT', count)
  for _, entry in ipairs(part) do
    entries[#entries + 1] = entry
    bytes = bytes + #entry[2][2]
  end
  if #part < count then break end
  left, first = left - count, '(' .. part[count][1]
end
return { string.format('%.0f', epoch) .. '-' .. offset, entries }
