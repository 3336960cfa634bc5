-- Publishes a batch.
--
-- KEYS: fence, writer, groups, then for each publication its stream and, if `stride` is 2, the key of its id, or the
--   stream again if it has none.
-- ARGV: run id, least epoch, generation of the connection, number of the batch, least number that the writer's last
--   batch must have, '1' if the writer may be new, publications, stride, milliseconds that an id is remembered, number
--   of streams to be kept longer, entries and bytes that the work of a topic's queue groups may have, milliseconds to
--   keep a stream whose epoch is another than expected, or '0' for ever, '1' if full work drops the new publication, what the names of
--   channels begin with in place of the lane of the keys, or ''; then for each publication '<expected epoch>-*' or '' without history, the publications to keep, the record; then for each stream to be kept longer its index in KEYS and the milliseconds.
-- Streams are shortened by whole blocks ('~'), so that a publication takes 0.7 of the time: some keep one block more
-- than told.
-- Reply: the places, separated by spaces: '<epoch>-<offset>', '-' without history, both with '=' in front for a
--   duplicate, or '!' for a stream that cannot be used. Or one of the words stale, forgotten, gap, begin, fenced;
--   then nothing was done.
local slot = 'r' .. (tonumber(ARGV[4]) % 4)
local writer = redis.call('HMGET', KEYS[2], 'n', 'c', slot)
local batch, last = tonumber(ARGV[4]), tonumber(writer[1])
if (tonumber(writer[2]) or 0) > tonumber(ARGV[3]) then return 'stale' end
if last then
  if last >= batch then
    local head = ARGV[4] .. ' '
    if writer[3] and string.sub(writer[3], 1, #head) == head then
      return string.sub(writer[3], #head + 1)
    end
    return 'forgotten'
  end
  if last < tonumber(ARGV[5]) then return 'gap' end
elseif ARGV[6] ~= '1' then
  return 'begin'
end
if not is_fenced(KEYS[1], ARGV[1], ARGV[2]) then return 'fenced' end

-- The first write: if Redis refuses writes, it refuses this one, and nothing is done.
local first = redis.pcall('HSET', KEYS[2], 'n', ARGV[4], 'c', ARGV[3])
if type(first) == 'table' then return redis.error_reply('REFUSED ' .. first.err) end

local count, stride, kept = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[10])
local places = {}
local k, a = 4, 16
-- The key of the groups is the lane and one letter.
local lane, rest_at = ARGV[15], #KEYS[3]
local has_groups = redis.call('EXISTS', KEYS[3]) == 1
for i = 1, count do
  local key, id, record = KEYS[k], ARGV[a], ARGV[a + 2]
  local id_key = stride == 2 and KEYS[k + 1] ~= key and KEYS[k + 1]
  local place = id_key and redis.call('GET', id_key)
  if place then
    places[i] = '=' .. place
  else
    if id == '' then
      place = '-'
    else
      place = redis.pcall('XADD', key, 'NOMKSTREAM', 'MAXLEN', '~', ARGV[a + 1], id, 'd', record)
      if type(place) ~= 'string' then
        -- The stream is missing or has another epoch than the node knows.
        local expected = tonumber(string.match(id, '^%d+'))
        local epoch = valid_epoch(key, tonumber(ARGV[2]), expected)
        place = epoch and redis.call('XADD', key, 'MAXLEN', '~', ARGV[a + 1], epoch .. '-*', 'd', record) or '!'
        if epoch and ARGV[13] ~= '0' then redis.call('PEXPIRE', key, ARGV[13]) end
      end
    end
    if place ~= '!' then
      if has_groups then
        -- The key of a stream is as that of the groups, with another letter and the topic.
        add_work(KEYS[3], string.sub(key, #KEYS[3] + 2), ARGV[2], place, record, ARGV[11], tonumber(ARGV[12]),
          ARGV[14] == '1')
      end
      -- The body of `tell`: one more function call for each publication would take a tenth of its time.
      local message = place .. ' ' .. record
      local channel = lane == '' and key or lane .. string.sub(key, rest_at)
      redis.call(TELL, channel, message)
      if tells_patterns then redis.call('PUBLISH', channel, message) end
      if id_key then redis.call('SET', id_key, place, 'PX', ARGV[9]) end
    end
    places[i] = place
  end
  k, a = k + stride, a + 3
end
for _ = 1, kept do
  redis.call('PEXPIRE', KEYS[tonumber(ARGV[a])], ARGV[a + 1])
  a = a + 2
end
local reply = table.concat(places, ' ')
redis.call('HSET', KEYS[2], slot, ARGV[4] .. ' ' .. reply)
redis.call('PEXPIRE', KEYS[2], '3600000')
return reply
