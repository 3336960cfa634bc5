-- While the slot moves, some of its keys may be at another node. Redis refuses a key that is not declared only where the script
-- uses it, after other keys may have been written. So the script first reads a key that never exists: while the slot moves, Redis
-- refuses that, too.
local is_here = redis.pcall('EXISTS', KEYS[1] .. '?')
if type(is_here) == 'table' then return redis.error_reply('TRYAGAIN the slot moves') end
-- How subscribers are told in a Redis Cluster: by the sharded form, which is not forwarded to other nodes, because all
-- subscribers are at this node. It knows no patterns: while somebody here has patterns, the plain form is used as well.
local TELL, tells_patterns = 'SPUBLISH', redis.call('PUBSUB', 'NUMPAT') > 0
