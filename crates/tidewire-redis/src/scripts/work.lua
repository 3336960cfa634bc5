-- Ends work of a node's members, hands some back, and takes more.
--
-- KEYS: writer, groups, groups of the node, channel of the topic.
-- ARGV: node, generation of the connection, topic, group, how many entries to take, how many ids are done; these ids;
--   ids to be handed back.
-- Reply: entries that the group has lost, or -1 if nobody knows how many; 1 if there may be more to take, else 0; entries
--   that another node may have had, and new ones: of each its id, the place of the publication, the record. Or one of
--   the words lost (the node is not in the group) and stale, then nothing was done.
if tonumber(redis.call('HGET', KEYS[1], 'c') or '0') > tonumber(ARGV[2]) then return 'stale' end
local node, topic, group = ARGV[1], ARGV[3], ARGV[4]
local own = own_name(topic, group)
if redis.call('SISMEMBER', KEYS[3], own) == 0 then return 'lost' end
local stream = KEYS[2] .. ':' .. topic
local infos = redis.pcall('XINFO', 'GROUPS', stream)
if infos.err then return 'lost' end
local last
for _, info in ipairs(infos) do
  if field_of(info, 'name') == group then last = field_of(info, 'last-delivered-id') end
end
if not last then return 'lost' end

local left, done = tonumber(ARGV[5]), tonumber(ARGV[6])
if done > 0 then
  local call = { 'XACK', stream, group }
  for i = 7, 6 + done do call[#call + 1] = ARGV[i] end
  redis.call(unpack(call))
  -- What every group has done goes.
  local least_epoch, least_number
  for _, info in ipairs(infos) do
    local pending = redis.call('XPENDING', stream, field_of(info, 'name'))
    local epoch, number = id_parts(pending[2] or field_of(info, 'last-delivered-id'))
    if pending[1] == 0 then number = number + 1 end
    if not least_epoch or epoch < least_epoch or (epoch == least_epoch and number < least_number) then
      least_epoch, least_number = epoch, number
    end
  end
  redis.call('XTRIM', stream, 'MINID', string.format('%.0f-%.0f', least_epoch, least_number))
end

local back = {}
for i = 7 + done, #ARGV do
  -- Another node may have it by now.
  if #redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], '1', node) == 1 then back[#back + 1] = ARGV[i] end
end
hand_back(KEYS[2], topic, group, back)
if #back > 0 then tell(KEYS[4], 'g') end

local lost, bytes, again, fresh = 0, 0, {}, {}
if left > 0 then
  lost = tonumber(redis.call('HGET', KEYS[2], 'l' .. own) or '0')
  if lost > 0 then redis.call('HDEL', KEYS[2], 'l' .. own) end
end
local function give(list, entry)
  local place, record = entry[2][2], entry[2][6]
  list[#list + 1] = entry[1]
  list[#list + 1] = place
  list[#list + 1] = record
  bytes = bytes + #record
  left = left - 1
end
while left > 0 and bytes < 1048576 do
  local free = redis.call('XPENDING', stream, group, '-', '+', math.min(left, 16), '_')
  if #free == 0 then break end
  local ids = {}
  for i, entry in ipairs(free) do ids[i] = entry[1] end
  local entries = claim(stream, group, node, ids)
  lost = lost + #ids - #entries
  for _, entry in ipairs(entries) do give(again, entry) end
end
local epoch, number = id_parts(last)
local is_unknown = false
while left > 0 and bytes < 1048576 do
  local count = math.min(left, 16)
  local read = redis.call('XREADGROUP', 'GROUP', group, node, 'COUNT', count, 'STREAMS', stream, '>')
  local entries = read and read[1][2] or {}
  for _, entry in ipairs(entries) do
    local entry_epoch, entry_number = id_parts(entry[1])
    if entry_epoch == epoch then
      lost = lost + entry_number - number - 1
    else
      is_unknown = true
    end
    epoch, number = entry_epoch, entry_number
    give(fresh, entry)
  end
  if #entries < count then break end
end
local more = (left == 0 or bytes >= 1048576) and 1 or 0
return { is_unknown and -1 or lost, more, again, fresh }
