-- The nodes whose lease holds.
--
-- KEYS: nodes.
-- ARGV: what the keys of leases begin with, how many at most.
-- Reply: for each node its name and what it says about itself.
local reply = {}
local nodes = redis.call('ZRANGE', KEYS[1], '0', tonumber(ARGV[2]) - 1)
table.sort(nodes)
if #nodes == 0 then return reply end
local leases = {}
for i, node in ipairs(nodes) do leases[i] = ARGV[1] .. node end
local infos = redis.call('MGET', unpack(leases))
for i, node in ipairs(nodes) do
  local info = infos[i]
  if info then
    reply[#reply + 1] = node
    reply[#reply + 1] = info
  end
end
return reply
