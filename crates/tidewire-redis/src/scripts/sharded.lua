-- How subscribers are told in a Redis Cluster: by the sharded form, which is not forwarded to other nodes, because all
-- subscribers are at this node. It knows no patterns: while somebody here has patterns, the plain form is used as well.
local TELL, tells_patterns = 'SPUBLISH', redis.call('PUBSUB', 'NUMPAT') > 0
