-- renew_many: the watchdog's plain renewals, hundreds in one call. Who is not found as it should be, or has more to it
-- than usual, is asked for alone.
--
--   KEYS   owner meta, for each
--   ARGV   owner fence ttl_ms number, for each
--   reply  {remaining_ms, ...}; -1: ask with renew

local call, match, find, format = redis.call, string.match, string.find, string.format
local time = call('TIME')
local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local replies = {}
local length, ttl, ends, ends_text, owner_px, meta_px -- of those with the same ttl, which most have
for at = 1, #KEYS, 2 do
    local from = at * 2 - 1
    local left = -1
    if call('GET', KEYS[at]) == ARGV[from] then
        local fence, expires, renewals, rest = match(call('GET', KEYS[at + 1]) or '', '^(%d+) %d+ (%d+) (%d+) (.*)$')
        if length ~= ARGV[from + 2] then
            length = ARGV[from + 2]
            ttl = tonumber(length)
            ends = ms + ttl
            ends_text = format('%.0f', ends)
            owner_px = format('%d', ttl - 1)
            meta_px = format('%d', ttl + math.max(ttl, 60000) - 1)
        end
        -- Not over, not shortened by this, no lock-delay and no closed door.
        if fence == ARGV[from + 1] and expires + 0 > ms and expires + 0 <= ends and find(rest, '^%d+ 0 0 ') then
            local number = ARGV[from + 3]
            if renewals + 0 > number + 0 then
                number = renewals
            end
            call('PEXPIRE', KEYS[at], owner_px)
            call('SET', KEYS[at + 1], fence .. ' ' .. length .. ' ' .. ends_text .. ' ' .. number .. ' ' .. rest,
                'PX', meta_px)
            left = ttl
        end
    end
    replies[#replies + 1] = left
end
return replies
