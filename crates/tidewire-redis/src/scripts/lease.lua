-- Renews the lease of a node, sends a probe through its channel, and ends queue groups that nobody came back to.
--
-- KEYS: lease, fence, channel, nodes, groups, groups without nodes.
-- ARGV: milliseconds, number of the probe, node, what the node says about itself.
-- Reply: 1 if the lease still held, else 0; seconds and microseconds of Redis; the run id and the least epoch of the
--   fence, or ''; some nodes whose lease has ended; the stamp of the agreement, or ''.

-- Without memory Redis refuses the first write of a script, but not one that needs no memory, and not those behind it.
local held = redis.call('PEXPIRE', KEYS[1], ARGV[1])
tell(KEYS[3], 'p' .. ARGV[2])
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[1])
local fence = redis.call('HMGET', KEYS[2], 'run', 'least', 'agreed')
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZADD', KEYS[4], string.format('%.0f', now + tonumber(ARGV[1])), ARGV[3])
local ended = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', string.format('(%.0f', now), 'LIMIT', '0', '16')
for _, own in ipairs(redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', string.format('%.0f', now), 'LIMIT', '0', '16')) do
  local topic, group = split_own(own)
  local stream = KEYS[5] .. ':' .. topic
  redis.call('ZREM', KEYS[6], own)
  redis.call('HDEL', KEYS[5], 'l' .. own)
  redis.pcall('XGROUP', 'DESTROY', stream, group)
  local left = redis.pcall('XINFO', 'GROUPS', stream)
  if left.err or #left == 0 then
    redis.call('HDEL', KEYS[5], 't' .. topic)
    if not left.err then redis.call('UNLINK', stream) end
  end
end
return { held, time[1], time[2], fence[1] or '', fence[2] or '', ended, fence[3] or '' }
