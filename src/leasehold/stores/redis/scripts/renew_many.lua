-- renew_many: the watchdog's plain renewals, hundreds in one call. Who is not found as it should be is asked for alone.
--
--   KEYS   owner meta, for each
--   ARGV   owner fence ttl_ms number, for each
--   reply  {remaining_ms, ...}; -1: ask with renew, which knows why

local time = redis.call('TIME')
local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local replies = {}
for at = 1, #KEYS, 2 do
    local from = at * 2 - 1
    local found = redis.call('MGET', KEYS[at], KEYS[at + 1])
    local left = -1
    if found[1] == ARGV[from] and found[2] then
        local fence, expires, renewals, rest, closed, delay =
            string.match(found[2], '^(%d+) %d+ (%d+) (%d+) (%d+ (%d+) (%d+) .*)$')
        if fence == ARGV[from + 1] and tonumber(expires) > ms then
            local ttl, number = tonumber(ARGV[from + 2]), tonumber(ARGV[from + 3])
            local ends = math.max(ms + ttl, tonumber(expires))
            redis.call('PEXPIREAT', KEYS[at], string.format('%.0f', ends - 1))
            redis.call('SET', KEYS[at + 1], string.format('%s %.0f %.0f %.0f ', fence, ttl, ends,
                math.max(tonumber(renewals), number)) .. rest, 'PXAT',
                string.format('%.0f', math.max(ends + math.max(ttl, 60000, tonumber(delay)), tonumber(closed)) - 1))
            left = ends - ms
        end
    end
    replies[#replies + 1] = left
end
return replies
