-- Renews the lease of a node, and sends a probe through its channel.
--
-- KEYS: lease, fence, channel.
-- ARGV: milliseconds, number of the probe.
-- Reply: 1 if the lease still held, else 0; seconds and microseconds of Redis; the run id and the least epoch of the
--   fence, or ''.
local held = redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1], 'GET')
local fence = redis.call('HMGET', KEYS[2], 'run', 'least')
redis.call('PUBLISH', KEYS[3], 'p' .. ARGV[2])
local time = redis.call('TIME')
return { held and 1 or 0, time[1], time[2], fence[1] or '', fence[2] or '' }
