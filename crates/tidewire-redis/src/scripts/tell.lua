-- Tells those who subscribe to a channel, by its name or by a pattern.
local function tell(channel, message)
  redis.call(TELL, channel, message)
  if tells_patterns then redis.call('PUBLISH', channel, message) end
end
