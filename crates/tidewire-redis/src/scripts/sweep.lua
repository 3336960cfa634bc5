-- Takes a node out whose lease has ended, some of its users and queue groups at a time.
--
-- KEYS: nodes, lease, topics of the node, groups of the node, groups, groups without nodes.
-- ARGV: node, how many at a time, what the keys of members, of users and the channels begin with, '1' to end the lease.
-- Reply: swept when all is done; more; alive if the lease holds; gone if there is no such node.
if ARGV[6] == '1' then
  redis.call('DEL', KEYS[2])
elseif redis.call('EXISTS', KEYS[2]) == 1 then
  return 'alive'
end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'gone' end
-- If this is not the last time, others see at once that the lease has ended.
redis.call('ZADD', KEYS[1], '0', ARGV[1])
local some = redis.call('SRANDMEMBER', KEYS[3], ARGV[2])
table.sort(some)
for _, own in ipairs(some) do
  local length, rest = string.match(own, '^(%d+):(.*)$')
  local topic, user = string.sub(rest, 1, tonumber(length)), string.sub(rest, tonumber(length) + 1)
  local members, users, channel = keys_of({ ARGV[3], ARGV[4], ARGV[5] }, topic)
  -- A key of another type has no member: nothing is left to be done there.
  local done, failure = pcall(set_member, members, users, channel, ARGV[1], user, '0', '')
  if not done and not is_wrong_type(failure) then error(failure) end
  redis.call('SREM', KEYS[3], own)
end
local owns = redis.call('SRANDMEMBER', KEYS[4], '10')
table.sort(owns)
for _, own in ipairs(owns) do
  leave_group(KEYS[5], KEYS[6], KEYS[4], ARGV[5] .. split_own(own), ARGV[1], own)
end
if redis.call('SCARD', KEYS[3]) + redis.call('SCARD', KEYS[4]) > 0 then return 'more' end
redis.call('ZREM', KEYS[1], ARGV[1])
return 'swept'
