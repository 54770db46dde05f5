-- release: end a grant. forget_ms: leave a tombstone; again: an earlier release of this grant got no reply.
--
--   ARGV   owner fence forget_ms again(1|0)
--   reply  {RELEASED found(1|0)}  {NOT_YOURS reason}; found 0: there was nothing, and an earlier release may have arrived

local owner, fence, forget, again = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

-- Fast path: it was held alone. The keys are those of _state.
local taken = forget == 0 and redis.call('GET', KEYS[1])
local start = taken and fence .. ' ' .. owner .. ' '
if taken and #taken <= 16384 and string.find(taken, start, 1, true) == 1 then
    local flag = string.match(taken, '^%d+ %d+ (%d) ', #start + 1)
    if flag == '0' then -- nobody waits or watches
        redis.call('DEL', KEYS[1])
        return {6, 1} -- RELEASED
    end
-- include _handoff
elseif taken and string.sub(taken, 1, 1) == ':' and redis.call('EXISTS', KEYS[3], KEYS[6]) == 0 then
    local raw = redis.call('HGET', KEYS[5], owner) or ''
    local given, expires, closed, slots = string.match(#raw + #taken <= 16384 and raw or '', -- slots, and places for them
        '^(%d+) %d+ (%d+) %d+ %d+ (%d+) %d+ [01] %l+ %d+ ([%d,]+) ')
    local time = redis.call('TIME')
    local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
    if given == fence and closed == '0' and tonumber(expires) > ms then
        redis.call('HDEL', KEYS[5], owner)
        local head, latest, rest, bits = string.match(taken, '^(:semaphore (%d+) )(%d+ %d+ )([01]*)$') -- as in _state
        if redis.call('EXISTS', KEYS[5]) == 0 then -- it was the last
            redis.call('DEL', KEYS[1])
        elseif head then
            for slot in string.gmatch(slots, '%d+') do
                bits = string.sub(bits, 1, slot) .. '0' .. string.sub(bits, slot + 2)
            end
            redis.call('SET', KEYS[1], head .. rest .. bits, 'PX', string.format('%.0f', math.max(latest - 1 - ms, 1)))
        end
        return {6, 1}
    end
end

-- include _state
-- include _sharing
-- include _turn

return turn(function()
    local grant = grant_of(owner)
    local ours = grant and grant.fence == fence
    if ours then
        end_grant(grant)
        close(grant, tonumber(grant.closed))
    end
    local known = tombstone(owner)
    local found = ours or known and known.outcome == 'released'
    ours = found or again and (not known or known.outcome == 'gone') -- released before, or expired: who knows
    local outcome = found and 'released' or ours and 'gone' or why_not(owner, fence)
    if forget > 0 and not grant_of(owner) then
        freed = leave(owner) or freed
        bury(owner, fence, outcome, ms + forget)
    end
    return ours and {RELEASED, found and 1 or 0} or {NOT_YOURS, outcome}
end)
