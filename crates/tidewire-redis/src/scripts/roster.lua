-- Reads some of those who are on a topic.
--
-- KEYS: members.
-- ARGV: cursor, '0' at first; about how many.
-- Reply: the version, from before now if nobody is there; the next cursor, '0' at the end; fields and values.
local version = redis.call('HGET', KEYS[1], 'v')
if not version then
  local time = redis.call('TIME')
  return { string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]) - 1), '0', {} }
end
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
return { version, page[1], page[2] }
