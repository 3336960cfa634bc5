-- Takes a node into a queue group, which begins with it if there is none.
--
-- KEYS: lease, writer, fence, groups, groups without nodes, groups of the node.
-- ARGV: node, generation of the connection, run id, least epoch, topic, group, how many groups a topic may have.
-- Reply: joined; new if there was no such group; full; wrong if the key has another type; or one of the words lost (the
--   lease has ended), stale and fenced. But for joined and new nothing was done.
if redis.call('EXISTS', KEYS[1]) == 0 then return 'lost' end
if tonumber(redis.call('HGET', KEYS[2], 'c') or '0') > tonumber(ARGV[2]) then return 'stale' end
local fence = redis.call('HMGET', KEYS[3], 'run', 'least')
if fence[1] ~= ARGV[3] or fence[2] ~= ARGV[4] then return 'fenced' end
local topic, group = ARGV[5], ARGV[6]
local stream = KEYS[4] .. ':' .. topic
local known, count = false, 0
local infos = redis.pcall('XINFO', 'GROUPS', stream)
if infos.err then
  if not string.find(infos.err, 'no such key', 1, true) then return 'wrong' end
  redis.call('XADD', stream, 'MAXLEN', '0', ARGV[4] .. '-0', 'd', '')
else
  count = #infos
  for _, info in ipairs(infos) do
    if field_of(info, 'name') == group then known = true end
  end
end
local own = own_name(topic, group)
if not known then
  if count >= tonumber(ARGV[7]) then return 'full' end
  redis.call('XGROUP', 'CREATE', stream, group, '$')
  redis.call('HDEL', KEYS[4], 'l' .. own)
end
redis.call('HSETNX', KEYS[4], 't' .. topic, '0')
redis.call('XGROUP', 'CREATECONSUMER', stream, group, ARGV[1])
redis.call('SADD', KEYS[6], own)
redis.call('ZREM', KEYS[5], own)
return known and 'joined' or 'new'
