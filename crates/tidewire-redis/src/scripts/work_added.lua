-- Adds an entry to the work of a topic, if there is any: its id, else something that is no text. Work that was moved from
-- another partition may be of a later epoch than that of the fence, and goes on in it.
local function add_entry(stream, least, most, ...)
  local id = redis.pcall('XADD', stream, 'NOMKSTREAM', 'MAXLEN', most, least .. '-*', ...)
  if type(id) ~= 'table' then return id end
  local later = last_of(stream)
  return later and redis.pcall('XADD', stream, 'NOMKSTREAM', 'MAXLEN', most, string.format('%.0f-*', later), ...)
end

-- Adds a publication to the work of the topic's queue groups, if it has any. The oldest is dropped when there are
-- `most`, or more than `bytes_max` bytes of records; the bytes are looked at once for each sixteenth of them. With
-- `drops_newest` the new one is dropped instead: it takes its number, so that the groups see that it is missing.
local function add_work(groups, topic, least, place, record, most, bytes_max, drops_newest)
  local before = redis.call('HGET', groups, 't' .. topic)
  if not before then return end
  local stream = groups .. ':' .. topic
  if drops_newest then
    local first = redis.pcall('XRANGE', stream, '-', '+', 'COUNT', '1')[1]
    if type(first) == 'table' and (redis.call('XLEN', stream) >= tonumber(most)
        or tonumber(before) + #record - tonumber(first[2][4]) > bytes_max) then
      local id = add_entry(stream, least, '9007199254740992', 'd', '')
      if type(id) == 'string' then redis.call('XDEL', stream, id) end
      return
    end
  end
  local id = add_entry(stream, least, most, 'p', place, 'b', before, 'd', record)
  if type(id) ~= 'string' then return end
  local total = tonumber(before) + #record
  redis.call('HSET', groups, 't' .. topic, string.format('%.0f', total))
  local step = math.max(math.floor(bytes_max / 16), 1)
  if math.floor(total / step) == math.floor(tonumber(before) / step) then return end
  while true do
    local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', '1')[1]
    if not first or first[1] == id or total - tonumber(first[2][4]) <= bytes_max then return end
    redis.call('XDEL', stream, first[1])
  end
end
