-- renew_many: the watchdog's plain renewals of leases that are held alone, hundreds in one call. One that is not found
-- as expected, or needs more than a new end, is renewed by itself.
--
--   KEYS   owner, for each
--   ARGV   'fence owner ttl_ms number ', for each: how its record begins
--   reply  {place ...}: those that were not renewed, counted from 1

local call, byte, find, sub = redis.call, string.byte, string.find, string.sub
local refused = {}
local tail, px = '-', nil -- most have the same ttl and number
for at, taken in ipairs(call('MGET', unpack(KEYS))) do -- a key of another type counts as missing
    local start = ARGV[at]
    local flag = taken and find(taken, start, 1, true) == 1 and byte(taken, #start + 1)
    if flag == 48 or flag == 49 then -- 0, 1: nothing else has to be written
        if sub(start, -#tail) ~= tail then
            tail = string.match(start, ' %d+ %d+ $')
            px = string.format('%d', string.match(tail, '%d+') - 1)
        end
        call('PEXPIRE', KEYS[at], px)
    else
        refused[#refused + 1] = at
    end
end
return refused
