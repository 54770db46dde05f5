-- renew_many: the watchdog's plain renewals, hundreds in one call. A grant that is not found as expected, or needs
-- more than usual, is renewed alone; so is a shared one that others wait for or watch, or that has a stored limit.
--
--   KEYS   owner meta holders queue watchers limit, for each
--   ARGV   owner fence ttl_ms number, for each
--   reply  {remaining_ms, ...}; -1: send renew

-- include _renewal

local time = call('TIME')
ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local replies, turned = {}, {}
for key = 1, #KEYS, 6 do
    local at = (key - 1) / 6 * 4 + 1
    local owner, fence, ttl_ms, number = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local taken = redis.pcall('GET', KEYS[key]) -- a foreign value at one key must not cost the others a renewal
    local left = -1
    if taken == owner then
        local raw = renewed(redis.pcall('GET', KEYS[key + 1]), fence, ttl_ms, number)
        if raw then
            call('PEXPIRE', KEYS[key], owner_px)
            call('SET', KEYS[key + 1], raw, 'PX', meta_px)
            left = ttl
        end
    elseif type(taken) == 'string' then
        local others = {KEYS[key + 3], KEYS[key + 4], KEYS[key + 5]}
        left = renew_shared(taken, KEYS[key], KEYS[key + 2], others, turned, owner, fence, ttl_ms, number)
    end
    replies[#replies + 1] = left
end
return replies
