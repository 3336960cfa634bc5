-- How subscribers are told in a Redis Cluster: without its other nodes, since all subscribers are at this one. The sharded
-- form knows no patterns; the plain one, which goes to all nodes, is used as well while somebody here has patterns.
local TELL, tells_patterns = 'SPUBLISH', redis.call('PUBSUB', 'NUMPAT') > 0
