-- Opens a producer for a connection, which holds it until it is opened again.
--
-- KEYS: fence, producer.
-- ARGV: run id, least epoch, the epoch that it begins with if it is not known, milliseconds to keep it, milliseconds for
-- which the opening has waited, instance of the client or nothing, number of its attempt.
-- Reply: its epoch, the number of its last accepted message, the opening, which grows. The opening is 0 if a later
-- connection has opened the producer before: then nothing was done. Or the word fenced.
if not is_fenced(KEYS[1], ARGV[1], ARGV[2]) then return 'fenced' end
local known = redis.call('HMGET', KEYS[2], 'e', 'n', 'f', 'o', 'i', 'a')
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local before, waited = tonumber(known[4]) or 0, tonumber(ARGV[5])
local late = waited > 0 and before > now - waited
-- A client counts its own connections. Of two clients the one that asked later is the later one.
if ARGV[6] ~= '' and ARGV[6] == known[5] then late = tonumber(ARGV[7]) < tonumber(known[6]) end
if late then return { known[1], known[2], '0' } end
local opening = string.format('%.0f', math.max(now - waited, before + 1))
local epoch, last = known[1], known[2]
-- What was kept under another fence may be older than what was acknowledged.
if not epoch or known[3] ~= ARGV[2] then
  epoch, last = ARGV[3], '0'
end
redis.call('HSET', KEYS[2], 'e', epoch, 'n', last, 'f', ARGV[2], 'o', opening, 'i', ARGV[6], 'a', ARGV[7])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return { epoch, last, opening }
