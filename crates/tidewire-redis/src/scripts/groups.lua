-- What the scripts about queue groups begin with.
--
-- The work of a topic's groups is a stream '<groups>:<topic>', where <groups> is the key of the hash of groups. An entry
-- has the place of the publication (p), the bytes of all records before it (b) and the record (d). Ids are
-- '<least epoch>-<number>' without a hole, so that a group sees how many were dropped. A node is a consumer; what nobody
-- has is with the consumer '_'. The hash has 't<topic>', the bytes of all records so far, and 'l<own>', the entries that
-- a group has lost, where <own> is '<length of the topic>:<topic><group>'.

local function own_name(topic, group)
  return #topic .. ':' .. topic .. group
end

local function split_own(own)
  local length, rest = string.match(own, '^(%d+):(.*)$')
  length = tonumber(length)
  return string.sub(rest, 1, length), string.sub(rest, length + 1)
end

local function id_parts(id)
  local epoch, number = string.match(id, '^(%d+)%-(%d+)$')
  return tonumber(epoch), tonumber(number)
end

-- A field of a reply that is a list of names and values.
local function field_of(list, name)
  for i = 1, #list, 2 do
    if list[i] == name then return list[i + 1] end
  end
end

-- Moves entries to a consumer; those that the stream still has.
local function claim(stream, group, consumer, ids, option)
  local call = { 'XCLAIM', stream, group, consumer, '0' }
  for _, id in ipairs(ids) do call[#call + 1] = id end
  call[#call + 1] = option
  return redis.call(unpack(call))
end

-- Takes entries from a node, so that any node can have them.
local function hand_back(groups, topic, group, ids)
  if #ids == 0 then return end
  local kept = claim(groups .. ':' .. topic, group, '_', ids, 'JUSTID')
  if #kept < #ids then
    redis.call('HINCRBY', groups, 'l' .. own_name(topic, group), #ids - #kept)
  end
end

-- Takes a node out of a group, some of its entries at a time; whether it is out. A group without nodes is listed with
-- the time of its end.
local function leave_group(groups, idle, own_key, channel, node, own)
  local topic, group = split_own(own)
  local stream = groups .. ':' .. topic
  local some = redis.pcall('XPENDING', stream, group, '-', '+', '100', node)
  if not some.err then
    local ids = {}
    for i, entry in ipairs(some) do ids[i] = entry[1] end
    hand_back(groups, topic, group, ids)
    if #ids > 0 then tell(channel, 'g') end
    if #ids == 100 then return false end
    redis.call('XGROUP', 'DELCONSUMER', stream, group, node)
    local nodes = 0
    for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
      if field_of(consumer, 'name') ~= '_' then nodes = nodes + 1 end
    end
    if nodes == 0 then
      local time = redis.call('TIME')
      redis.call('ZADD', idle, string.format('%.0f', tonumber(time[1]) * 1000 + 60000), own)
    end
  end
  redis.call('SREM', own_key, own)
  return true
end
