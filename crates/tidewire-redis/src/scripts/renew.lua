-- Begins a new epoch of one topic and forgets what it has.
--
-- KEYS: fence, stream.
-- ARGV: run id, least epoch, the epoch that must be the present one or '' for any, an epoch that the new one must exceed,
--   the channel.
-- Reply: the newest id; '' if there is no stream; 1 if an epoch was begun, else 0. Or the word fenced.
if not is_fenced(KEYS[1], ARGV[1], ARGV[2]) then return 'fenced' end
local key = KEYS[2]
local epoch, offset, err = last_of(key)
if err or not epoch then return { '', 0 } end
local present = string.format('%.0f', epoch)
-- Whoever forgets wants nothing of a topic that nobody has published to since its epoch began.
if ARGV[3] == '' and offset == '0' then return { present .. '-0', 0 } end
if ARGV[3] ~= '' and ARGV[3] ~= present then return { present .. '-' .. offset, 0 } end
local place = begin_epoch(key, tonumber(ARGV[2]), math.max(epoch, tonumber(ARGV[4]))) .. '-0'
tell(ARGV[5], place)
return { place, 1 }
