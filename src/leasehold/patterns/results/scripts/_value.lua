-- The stored value, which Python takes apart; times are the server's.
--
--   reply   {1 {value seconds microseconds pttl}}, {1} where there is nothing

local value = redis.call('GET', KEYS[1])
if not value then
    return {1}
end
local time = redis.call('TIME')
return {1, {value, time[1], time[2], redis.call('PTTL', KEYS[1])}}
