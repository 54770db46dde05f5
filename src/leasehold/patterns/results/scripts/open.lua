-- open: the rule has been kept; the record is to be remembered for a day longer than the value stays, then read.
--
--   KEYS    value record                    and the record once more, which the rule has taken away
--   ARGV    remember_ms                     and what the rule takes, with remember_ms as its keep_ms
--   reply   as _look says

local left = redis.call('PTTL', KEYS[1])
if left > 0 then
    redis.call('PEXPIRE', KEYS[2], string.format('%.0f', left + tonumber(ARGV[1])))
end
-- include _look
