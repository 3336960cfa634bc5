-- Sets what a node has of some users.
--
-- KEYS: lease, writer, topics of the node.
-- ARGV: node, generation of the connection, what the keys of members, of users and the channels begin with; then for
--   each change its topic, the user, the connections, the data or ''.
-- Reply: ok; wrong if keys of some topics have another type, all else is done; or one of the words lost (the lease has
--   ended) and stale, then nothing was done.
if redis.call('EXISTS', KEYS[1]) == 0 then return 'lost' end
if tonumber(redis.call('HGET', KEYS[2], 'c') or '0') > tonumber(ARGV[2]) then return 'stale' end
local reply = 'ok'
local prefixes = { ARGV[3], ARGV[4], ARGV[5] }
for i = 6, #ARGV, 4 do
  local topic, user, connections = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local members, users, channel = keys_of(prefixes, topic)
  local own = #topic .. ':' .. topic .. user
  local done, failure = pcall(set_member, members, users, channel, ARGV[1], user, connections, ARGV[i + 3])
  if done then
    redis.call(connections == '0' and 'SREM' or 'SADD', KEYS[3], own)
  elseif is_wrong_type(failure) then
    reply = 'wrong'
  else
    error(failure)
  end
end
return reply
