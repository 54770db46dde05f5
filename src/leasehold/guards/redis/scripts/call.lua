-- call: one command on one key, in one step with the rule.
--
--   KEYS   key record
--   ARGV   command argument ... and what the rule takes
--   reply  {1 reply}  or as the rule says. An error of the command itself: nothing was changed

-- include _rule

return {1, redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))}
