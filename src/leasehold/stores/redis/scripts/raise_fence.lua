-- raise_fence: the grant of this owner has another fence from now on: the highest of the majority of a Redlock that
-- granted it. Its end stays as it is. A node that was late may have given a higher one: that only stays the least for
-- its next grant.
--
--   ARGV   owner fence
--   reply  {RENEWED remaining_ms}  {NOT_YOURS reason}

local owner, fence = ARGV[1], ARGV[2]

-- Fast path: it is held alone, and its fence is the last one. The keys are those of _state.
local taken = redis.call('GET', KEYS[1])
local given, rest = string.match(taken and #taken <= 16384 and taken or '', '^(%d+)( .*)$')
local start = ' ' .. owner .. ' '
if given and #given <= 16 and tonumber(given) <= tonumber(fence) and string.sub(rest, 1, #start) == start
    and string.find(rest, '^%d+ %d+ [01] ', #start + 1) and redis.call('GET', KEYS[2]) == given then
    local time = redis.call('TIME')
    local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
    redis.call('SET', KEYS[2], fence, 'PX', string.format('%.0f', math.max(math.ceil(fence / 1000), ms) + 86399999 - ms))
    redis.call('SET', KEYS[1], fence .. rest, 'KEEPTTL')
    return {5, redis.call('PTTL', KEYS[1]) + 1}
end

-- include _state
-- include _sharing
-- include _turn

return turn(function()
    local grant = grant_of(owner)
    if not grant then
        return {NOT_YOURS, why_not(owner, fence)}
    end
    probe_write()
    if tonumber(fence) > last then
        write_fence(tonumber(fence))
    end
    grant.fence = fence
    write_grant(grant)
    return {RENEWED, grant.expires - ms}
end)
