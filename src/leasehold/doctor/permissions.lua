-- Which of these commands would this user be refused? Nothing is executed: redis.acl_check_cmd only looks it up
-- (Redis 7, Valkey).
--
-- ARGV    commands, each as the number of its words followed by these: 2 get lock:v1:{x}:owner
-- reply   the names of those that are refused, or nil where the server cannot tell

if not redis.acl_check_cmd then
  return false
end

local refused = {}
local at = 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  local known, allowed = pcall(redis.acl_check_cmd, unpack(ARGV, at + 1, at + count))
  if known and not allowed then
    refused[#refused + 1] = ARGV[at + 1]
  end
  at = at + count + 1
end
return refused
