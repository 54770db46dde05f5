-- open: the rule has accepted the fence; the record now ends a day later than the value, which is then read.
--
--   KEYS    value record                    and the record once more, which the rule has removed
--   ARGV    remember_ms                     and what the rule takes, with remember_ms as its keep_ms
--   reply   as in _value

local left = redis.call('PTTL', KEYS[1])
if left > 0 then
    redis.call('PEXPIRE', KEYS[2], string.format('%.0f', left + tonumber(ARGV[1])))
end
-- include _value
