-- renew: hold on for ttl_ms from now. Never shortens, unless exact and not overtaken by a later one. shared: a writer is
-- a reader from now on. meta: what the holder says of itself from now on; empty: as before.
--
--   ARGV   owner fence ttl_ms exact(1|0) number closed_ms ticket shared(1|0) meta
--   reply  {RENEWED remaining_ms}  {NOT_YOURS reason}

-- include _state
-- include _turn

local owner, fence, ttl, exact, number, closed = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', tonumber(ARGV[5]),
    tonumber(ARGV[6])
return turn(function()
    local grant = grant_of(owner)
    if not grant or grant.fence ~= fence then -- never brought back to life
        return {NOT_YOURS, why_not(owner, fence)}
    end
    local expires = ms + ttl
    local renewals = tonumber(grant.renewals)
    if not exact or number < renewals then
        expires = math.max(expires, grant.expires)
    end
    grant.ttl, grant.expires, grant.renewals = ttl, expires, text(math.max(renewals, number))
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
        grant.rule, vacated, freed, seats = 'read', true, true, nil
    end
    insist()
    if grant.rule == 'semaphore' and limit_of(grant) and stored > 0 then
        keep_limit(text(stored)) -- whoever holds a permit uses it, also when nobody has come for long
    end
    if not SHARED[grant.rule] then
        redis.call('PEXPIREAT', OWNER, text(expires - 1))
    end
    write_grant(grant)
    return {RENEWED, expires - ms}
end)
