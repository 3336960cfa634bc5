-- Functions that the other scripts begin with.

-- Quarters of a second since 2020-01-01 by the clock of Redis.
local function now_quarters()
  local time = redis.call('TIME')
  return (tonumber(time[1]) - 1577836800) * 4 + math.floor(tonumber(time[2]) / 250000)
end

-- Removes the entries that no server wrote: their epoch is more than any. What is left goes on as before; if nothing
-- is left the stream is gone.
local function heal(key)
  local removed = 0
  repeat
    local foreign = redis.call('XRANGE', key, '4294967296-0', '+', 'COUNT', '100')
    for _, entry in ipairs(foreign) do redis.call('XDEL', key, entry[1]) end
    removed = removed + #foreign
  until #foreign == 0
  local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', '1')[1]
  if newest then redis.call('XSETID', key, newest[1]) else redis.call('UNLINK', key) end
  -- In both forms: this is rare, and subscribers use one of them. The channel may have a name of the database's own.
  local lane, rest = string.match(key, '^(.-{%d+}:)(t:.*)$')
  local own = lane and redis.call('HGET', lane .. 'agreed', 'channels')
  local channel = own and own .. rest or key
  redis.call('PUBLISH', channel, 'x' .. removed)
  redis.call('SPUBLISH', channel, 'x' .. removed)
end

-- The epoch and the offset of the newest id of a stream; nothing without a stream.
local last_of
function last_of(key)
  local info = redis.pcall('XINFO', 'STREAM', key)
  if info.err then
    if string.find(info.err, 'no such key', 1, true) then return nil end
    return nil, nil, info.err
  end
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      local epoch, offset = string.match(info[i + 1], '^(%d+)%-(%d+)$')
      if tonumber(epoch) > 4294967295 then
        heal(key)
        return last_of(key)
      end
      return tonumber(epoch), offset
    end
  end
end

-- Begins a new epoch: an empty stream whose newest id is <epoch>-0.
local function begin_epoch(key, least, greater_than)
  local epoch = string.format('%.0f', math.max(least, now_quarters(), greater_than + 1))
  redis.call('XADD', key, 'MAXLEN', '0', epoch .. '-0', 'd', '')
  return epoch
end

-- The epoch of a stream as text, which is a new one if the stream is missing or from before the fence; or nothing,
-- and an error.
local function valid_epoch(key, least, greater_than)
  local epoch, offset, err = last_of(key)
  if err then return nil, nil, err end
  if epoch and epoch >= least then return string.format('%.0f', epoch), offset end
  return begin_epoch(key, least, math.max(epoch or 0, greater_than)), '0'
end

-- Has a stream end after some milliseconds, or never with '0'. One that nobody has published to in its epoch ends after
-- ten minutes.
local function keep_for(key, ms, is_unused)
  if ms == '0' then return end
  if is_unused and tonumber(ms) > 600000 then ms = '600000' end
  redis.call('PEXPIRE', key, ms)
end

-- Whether the fence says what the caller was told.
local function is_fenced(key, run, least)
  local fence = redis.call('HMGET', key, 'run', 'least')
  return fence[1] == run and fence[2] == least
end
