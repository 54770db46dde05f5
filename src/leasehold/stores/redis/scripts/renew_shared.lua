-- renew_shared: the watchdog's plain renewals of leases that others share, hundreds in one call. A grant that is not
-- found as expected, or needs more than usual, is renewed by itself; so is one that others wait for or watch, or that
-- has a stored limit.
--
--   KEYS   owner holders queue watchers more, for each
--   ARGV   owner fence ttl_ms number, for each
--   reply  {place ...}: those that were not renewed, counted from 1

-- include _renewal

local time = call('TIME')
ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local refused, turned = {}, {}
for place = 1, #KEYS / 5 do
    local key, at = place * 5 - 4, place * 4 - 3
    local taken = redis.pcall('GET', KEYS[key]) -- a foreign value at one key must not cost the others a renewal
    if type(taken) ~= 'string' or renew_shared(taken, KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3],
        KEYS[key + 4], turned, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) < 0 then
        refused[#refused + 1] = place
    end
end
return refused
