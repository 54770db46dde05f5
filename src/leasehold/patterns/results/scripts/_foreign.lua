-- Comes before the rule of the guard (guards/redis/scripts/_rule.lua), which comes before the rest: SET would replace
-- a value of any type that another program has put at this key.
--
--   KEYS    value ...
--   reply   error FOREIGNVALUE: something else is at the key of the value. Nothing was accepted.

do
    local kind = redis.call('TYPE', KEYS[1]).ok
    if kind ~= 'string' and kind ~= 'none' then
        return {err = 'FOREIGNVALUE'}
    end
end
