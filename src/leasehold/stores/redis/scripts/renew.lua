-- renew: hold on for ttl_ms from now. Never shortens, unless exact and not overtaken by a later one. shared: a writer
-- is a reader from now on. meta: the holder's metadata from now on; empty: as before. fences: reserve so many. tell, with
-- fences: push to the holder when the next claim has to wait.
--
--   ARGV   owner fence ttl_ms exact(1|0) number closed_ms ticket shared(1|0) meta fences tell(1|0)
--   reply  {RENEWED remaining_ms}  {NOT_YOURS reason}
--          where fences were requested: {RENEWED remaining_ms first last others(1|0)}; no fences: first and last are 0

local owner, fence, ttl, exact, number, closed = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', tonumber(ARGV[5]),
    tonumber(ARGV[6])

local plain = not exact and closed == 0 and ARGV[7] == '-' and ARGV[8] == '0' and ARGV[9] == '' and ARGV[10] == '0'
local taken = plain and redis.call('GET', KEYS[1])

-- Fast path: it is held alone, and only its end is set anew. The keys are those of _state.
local start = taken and fence .. ' ' .. owner .. ' ' .. ttl .. ' ' .. ARGV[5] .. ' '
if taken and string.sub(taken, 1, #start) == start and string.find(taken, '^[01] ', #start + 1) then
    redis.call('PEXPIRE', KEYS[1], ttl - 1)
    return {5, tonumber(ttl)} -- RENEWED
end

-- Fast path: many may share, and mostly nobody waits for them.
if taken and string.sub(taken, 1, 1) == ':' then
    local function quickly()
-- include _renewal
        local time = call('TIME')
        ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
        return renew_shared(taken, KEYS[1], KEYS[5], KEYS[3], KEYS[6], KEYS[4], {}, owner, fence, ARGV[3], ARGV[5])
    end
    local left = quickly()
    if left >= 0 then
        return {5, left}
    end
end

-- include _state
-- include _sharing
-- include _turn

return turn(function()
    local grant = grant_of(owner)
    if not grant or grant.fence ~= fence then -- never brought back to life
        return {NOT_YOURS, why_not(owner, fence)}
    end
    local expires = ms + ttl
    local renewals = tonumber(grant.number)
    if expires < grant.expires and not (exact and number >= renewals) then -- an end keeps the length it was set with
        ttl, expires = grant.ttl, grant.expires
    end
    grant.ttl, grant.expires, grant.number = ttl, expires, text(math.max(renewals, number))
    if closed > 0 then
        grant.closed = text(math.max(tonumber(grant.closed), ms + closed))
    end
    if ARGV[7] ~= '-' then
        grant.ticket = ARGV[7]
    end
    if ARGV[9] ~= '' and number >= renewals then
        grant.meta = ARGV[9]
    end
    if ARGV[8] == '1' and grant.rule == 'write' then
        grant.rule, grant.tell, vacated, freed, seats = 'read', false, true, true, nil
    end
    probe_write()
    if grant.rule == 'semaphore' and limit_of(grant) and stored > 0 then
        keep_limit(stored) -- a holder of a permit uses it, also when no new claim has come for long
    end
    local others = ARGV[10] ~= '0' and not queue_is_empty()
    if ARGV[11] == '1' and ARGV[10] ~= '0' and not others and grant.holder_address ~= '-'
        and not SHARED[grant.rule] then
        grant.tell = true
    end
    write_grant(grant)
    if ARGV[10] == '0' then
        return {RENEWED, expires - ms}
    end
    local first, reserved = last + 1, math.min(last + ARGV[10], wall) -- none beyond the clock, which later ones go by
    if SHARED[grant.rule] or reserved < first then
        first, reserved = 0, 0
    else
        write_fence(reserved)
    end
    return {RENEWED, expires - ms, first, reserved, others and 1 or 0}
end)
