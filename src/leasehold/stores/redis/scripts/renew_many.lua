-- renew_many: the watchdog's plain renewals of leases that are held alone, hundreds in one call. One that is not found
-- as expected, or needs more than a new end, is renewed by itself.
--
--   KEYS   owner, for each
--   ARGV   'fence owner ttl_ms number ', for each: how its record begins
--   reply  {place ...}: those that were not renewed, counted from 1

local call, pcall, sub, find, match = redis.call, redis.pcall, string.sub, string.find, string.match
local refused = {}
local before, px
for at, key in ipairs(KEYS) do
    local start = ARGV[at]
    local taken = pcall('GET', key) -- a foreign value at one key must not cost the others a renewal
    if type(taken) == 'string' and sub(taken, 1, #start) == start and find(taken, '^[01] ', #start + 1) then
        local ttl = match(start, ' (%d+) %d+ $')
        if ttl ~= before then -- most have the same
            before, px = ttl, ttl - 1
        end
        call('PEXPIRE', key, px)
    else
        refused[#refused + 1] = at
    end
end
return refused
