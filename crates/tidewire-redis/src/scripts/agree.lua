-- Joins a node to what all nodes of the cluster must have in common.
--
-- KEYS: agreement, nodes, fence; in one of several independent Redis servers that does not have the first partition also the
--   agreement of the first partition, which there holds nothing but the list of servers.
-- ARGV: node, '1' if it has joined before, since when it has by the clock of Redis, its rules of topics, the limits that
--   its clients are told, milliseconds of its lease, what the names of the database's own channels begin with or '' in
--   database 0, '1' if the names were shared with other databases when the node asked last, '1' if it may begin the
--   cluster, the list of independent Redis servers or ''; then names and values that must be the same everywhere.
-- Reply: 'joined', 'differs', 'unbegun' or, after an operator has changed the agreement, 'changed'; the stamp, which changes with
--   everything in here; the milliseconds of Redis; names and values that differ; then for each other node whose
--   rules or limits differ the node, its rules, its limits, and the stamp that it has seen; then for how many
--   milliseconds channels have had names of the database's own, or '' while they are shared.
-- A node that joined earlier than the agreement began is right, unless an operator has set it: Redis had forgotten it.
local key, nodes, node, joined = KEYS[1], KEYS[2], ARGV[1], ARGV[2] == '1'
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local text = function(number) return string.format('%.0f', number) end
local fields, all = {}, redis.call('HGETALL', key)
for i = 1, #all, 2 do fields[all[i]] = all[i + 1] end
local at, differing = tonumber(fields['at']), {}
-- With names of its own a cluster has another protocol for servers of earlier versions, which do not join any more.
local earlier = { broker_partitions = '1', ['the list of brokers'] = '' }
local own_names, moved = ARGV[7], ' with channels of its own'
for i = 11, #ARGV, 2 do
  local known = fields['s:' .. ARGV[i]] or at and earlier[ARGV[i]]
  if known and known ~= ARGV[i + 1] and (own_names == '' or known ~= ARGV[i + 1] .. moved) then
    differing[#differing + 1] = ARGV[i]
    differing[#differing + 1] = known
  end
end
-- Of which servers this Redis is one, if it does not have the first partition.
local servers = fields['elsewhere']
if KEYS[4] and not servers then
  servers = redis.call('HGET', KEYS[4], 'elsewhere') or redis.call('EXISTS', KEYS[4]) == 1 and 'a first partition'
end
if servers and (fields['elsewhere'] or servers ~= ARGV[10]) then
  return { 'differs', fields['stamp'] or '', text(now), { 'the list of brokers', servers }, {}, '' }
end
local state = 'joined'
local begins = not at
if at and #differing > 0 then
  if joined and fields['set'] == '1' then
    state = 'changed'
  elseif joined and tonumber(ARGV[3]) < at then
    begins = true
  else
    return { 'differs', fields['stamp'] or '', text(now), differing, {}, '' }
  end
end
if begins and not joined and ARGV[9] ~= '1' then return { 'unbegun', '', text(now), {}, {}, '' } end
if KEYS[4] then redis.call('HSET', KEYS[4], 'elsewhere', ARGV[10]) end
redis.call('ZADD', nodes, text(now + tonumber(ARGV[6])), node)
local changed = begins
if begins then
  redis.call('HSET', key, 'at', joined and ARGV[3] or text(now))
  redis.call('HDEL', key, 'set')
  differing = {}
end
for i = 11, #ARGV, 2 do
  local name = 's:' .. ARGV[i]
  if begins or not fields[name] then redis.call('HSET', key, name, ARGV[i + 1]) end
end
if fields['r:' .. node] ~= ARGV[4] or fields['l:' .. node] ~= ARGV[5] then
  redis.call('HSET', key, 'r:' .. node, ARGV[4], 'l:' .. node, ARGV[5])
  changed = true
end
if own_names ~= '' and not fields['c:' .. node] then redis.call('HSET', key, 'c:' .. node, '1') end
local others = {}
for i = 1, #all, 2 do
  local other = string.match(all[i], '^r:(.*)$')
  if other and other ~= node then
    local ends = tonumber(redis.call('ZSCORE', nodes, other))
    if not ends or ends < now then
      redis.call('HDEL', key, 'r:' .. other, 'l:' .. other, 'a:' .. other, 'c:' .. other)
      changed = true
    elseif all[i + 1] ~= ARGV[4] or fields['l:' .. other] ~= ARGV[5] then
      for _, part in ipairs({ other, all[i + 1], fields['l:' .. other] or '', fields['a:' .. other] or '' }) do
        others[#others + 1] = part
      end
    end
  end
end
-- Since when channels have names of the database's own: when all nodes know them. Where Redis has forgotten nodes that do
-- not, they come back within the time of a lease.
local since = not begins and tonumber(fields['channels_at'])
if own_names ~= '' and not since then
  local wait = not begins and tonumber(fields['channels_wait']) or 0
  if begins and ARGV[8] == '1' then
    wait = now + tonumber(ARGV[6])
    redis.call('HSET', key, 'channels_wait', text(wait))
  end
  local alive = redis.call('ZRANGEBYSCORE', nodes, text(now), '+inf')
  local all_know = now >= wait
  for _, other in ipairs(alive) do
    all_know = all_know and (other == node or redis.call('HEXISTS', key, 'c:' .. other) == 1)
  end
  if begins then redis.call('HDEL', key, 'channels', 'channels_at') end
  if all_know then
    since = (begins or #alive == 1) and 0 or now
    redis.call('HSET', key, 'channels', own_names, 'channels_at', text(since))
    for i = 11, #ARGV, 2 do
      if ARGV[i] == 'protocol of records' then redis.call('HSET', key, 's:' .. ARGV[i], ARGV[i + 1] .. moved) end
    end
    changed = true
  end
end
local stamp = fields['stamp']
if changed or not stamp then stamp = text(math.max(now, (tonumber(stamp) or 0) + 1)) end
redis.call('HSET', key, 'stamp', stamp, 'a:' .. node, stamp)
redis.call('HSET', KEYS[3], 'agreed', stamp)
return { state, stamp, text(now), differing, others, since and text(math.max(now - since, 0)) or '' }
