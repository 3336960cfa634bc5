-- Where topics stand. Begins an epoch for those that are new or from before the fence.
--
-- KEYS: fence, then streams.
-- ARGV: run id, least epoch, then for each stream the milliseconds to keep it, or '0' for ever.
-- Reply: for each stream its newest id, or '!' if it cannot be used, and the mark of its newest record, or ''; or the
--   word fenced.
if not is_fenced(KEYS[1], ARGV[1], ARGV[2]) then return 'fenced' end
local least = tonumber(ARGV[2])
local reply = {}
for i = 2, #KEYS do
  local key = KEYS[i]
  local newest = redis.pcall('XREVRANGE', key, '+', '-', 'COUNT', '1')
  local id, mark = '!', ''
  if not newest.err then
    local entry = newest[1]
    local epoch = entry and tonumber(string.match(entry[1], '^%d+'))
    if entry and epoch >= least and epoch <= 4294967295 then
      id, mark = entry[1], string.sub(entry[2][2], 2, 17)
    else
      local epoch, offset = valid_epoch(key, least, 0)
      id = epoch .. '-' .. offset
    end
    keep_for(key, ARGV[i + 1], not entry and string.sub(id, -2) == '-0')
  end
  reply[#reply + 1] = id
  reply[#reply + 1] = mark
end
return reply
