-- Keeps the numbers of the last accepted messages of producers.
--
-- KEYS: fence, then the producers.
-- ARGV: run id, least epoch, milliseconds to keep them; then for each its opening, its epoch, the number.
-- Reply: for each 1, or 0 if it was opened again: then nothing was done with it. Or the word fenced.
if not is_fenced(KEYS[1], ARGV[1], ARGV[2]) then return 'fenced' end
local held = {}
for i = 2, #KEYS do
  local a = 3 * i - 2
  local known = redis.call('HGET', KEYS[i], 'o')
  if known and tonumber(known) > tonumber(ARGV[a]) then
    held[i - 1] = 0
  else
    redis.call('HSET', KEYS[i], 'e', ARGV[a + 1], 'n', ARGV[a + 2], 'f', ARGV[2], 'o', ARGV[a])
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
    held[i - 1] = 1
  end
end
return held
