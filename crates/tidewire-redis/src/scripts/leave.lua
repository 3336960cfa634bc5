-- Takes a node out of a queue group; what it has not done goes to others.
--
-- KEYS: writer, groups, groups without nodes, groups of the node, channel of the topic.
-- ARGV: node, generation of the connection, topic, group.
-- Reply: left; more if it has to be asked again; stale, then nothing was done.
if tonumber(redis.call('HGET', KEYS[1], 'c') or '0') > tonumber(ARGV[2]) then return 'stale' end
local own = own_name(ARGV[3], ARGV[4])
return leave_group(KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], own) and 'left' or 'more'
