-- Ties the epochs to the process of Redis, and ends the writer's earlier connections.
--
-- KEYS: fence, writer.
-- ARGV: run id, '1' if this process is durable, the greatest epoch that the node has seen, generation of the connection,
-- run ids of processes whose data was handed over to this one, all of it.
-- Reply: the least epoch; 1 if earlier epochs stay valid, else 0; seconds and microseconds of Redis.
local fence = redis.call('HMGET', KEYS[1], 'run', 'durable', 'least')
local is_same = fence[1] == ARGV[1]
local is_handed_over = false
for i = 5, #ARGV do is_handed_over = is_handed_over or fence[1] == ARGV[i] end
local stays = is_same or is_handed_over or (fence[1] and fence[2] == '1' and ARGV[2] == '1')
local least = tonumber(fence[3]) or 0
if not stays then
  -- One more than the time, because epochs of this moment may have been lost with the old process. Nobody uses it
  -- before its time has come, so that the next process can say the same.
  least = math.max(now_quarters() + 1, tonumber(ARGV[3]) + 1, least + 1)
end
local text = string.format('%.0f', least)
-- A process is as durable as the least confident node says.
local durable = (is_same and fence[2] == '0') and '0' or ARGV[2]
if not is_same or durable ~= fence[2] then
  redis.call('HSET', KEYS[1], 'run', ARGV[1], 'durable', durable, 'least', text)
end
redis.call('HSET', KEYS[2], 'c', ARGV[4])
redis.call('PEXPIRE', KEYS[2], '3600000')
local time = redis.call('TIME')
return { text, stays and 1 or 0, time[1], time[2] }
