-- renew_many: the watchdog's plain renewals, hundreds in one call. Who is not found as it should be is asked for alone.
--
--   KEYS   owner meta, for each
--   ARGV   owner fence ttl_ms number, for each
--   reply  {remaining_ms, ...}; -1: ask with renew, which knows why

local call, match, format, max = redis.call, string.match, string.format, math.max
local time = call('TIME')
local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local replies = {}
for at = 1, #KEYS, 2 do
    local from = at * 2 - 1
    local left = -1
    if call('GET', KEYS[at]) == ARGV[from] then
        local fence, expires, renewals, rest, closed, delay =
            match(call('GET', KEYS[at + 1]) or '', '^(%d+) %d+ (%d+) (%d+) (%d+ (%d+) (%d+) .*)$')
        if fence == ARGV[from + 1] and expires + 0 > ms then
            local ttl, number = ARGV[from + 2], ARGV[from + 3]
            left = max(ttl, expires - ms)
            if renewals + 0 > number + 0 then
                number = renewals
            end
            call('PEXPIRE', KEYS[at], format('%d', left - 1))
            call('SET', KEYS[at + 1], fence .. ' ' .. ttl .. ' ' .. format('%.0f', ms + left) .. ' ' .. number .. ' '
                .. rest, 'PX', format('%d', max(left + max(ttl, 60000, delay), closed - ms) - 1))
        end
    end
    replies[#replies + 1] = left
end
return replies
