-- What the scripts about presence begin with.

-- Sets what a node has of a user on a topic: its connections, as text, and what the user says about itself, or ''. With
-- '0' connections the node has the user no more. Tells the channel if that changes anything:
-- 'u<version> <version before, or 0 if there was none> <what users see> <length of the field> <field><value>'. What
-- users see is j (joined), l (left), d (other data) or c (nothing).
-- KEYS of a topic: members (field <node><user>: '<connections> <version of the data> <data>'; field v: the version),
-- users (number of nodes that have them), channel.
local function set_member(members, users, channel, node, user, connections, data)
  local field = node .. user
  local before = redis.call('HMGET', members, 'v', field)
  local count, at, old
  if before[2] then count, at, old = string.match(before[2], '^(%d+) (%d+) (.*)$') end
  if connections == (count or '0') and (connections == '0' or data == old) then return end
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local version = string.format('%.0f', math.max(tonumber(before[1] or '0') + 1, now))
  local seen, value = 'c', ''
  if connections == '0' then
    redis.call('HDEL', members, field)
    if redis.call('HINCRBY', users, user, -1) <= 0 then
      redis.call('HDEL', users, user)
      seen = 'l'
    end
  else
    if data ~= old then
      at = version
      if data ~= '' then seen = 'd' end
    end
    value = connections .. ' ' .. at .. ' ' .. data
    redis.call('HSET', members, field, value)
    if not count and redis.call('HINCRBY', users, user, 1) == 1 then seen = 'j' end
  end
  redis.call('HSET', members, 'v', version)
  local fields = redis.call('HLEN', members)
  if fields == 1 then
    -- The version stays as long as a new one could be less: time stands still in a script.
    redis.call('PEXPIRE', members, '60000')
  elseif fields == 2 and not count then
    redis.call('PERSIST', members)
  end
  local head = table.concat({ 'u' .. version, before[1] or '0', seen, #field, field }, ' ')
  tell(channel, head .. value)
end

-- Whether a command failed because its key has another type.
local function is_wrong_type(failure)
  local text = type(failure) == 'table' and failure.err or tostring(failure)
  return string.find(text, 'WRONGTYPE', 1, true) ~= nil
end

-- The keys of a topic, by what they begin with in the order of `set_member`.
local function keys_of(prefixes, topic)
  return prefixes[1] .. topic, prefixes[2] .. topic, prefixes[3] .. topic
end
