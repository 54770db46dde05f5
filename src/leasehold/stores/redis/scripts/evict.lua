-- evict: take a grant away. Its place stays closed for delay_ms; -1: for what remained of the victim's time, and less
-- than that needs force. Idempotent by request. The note is kept, with the public part of the victim's owner.
--
--   ARGV   owner fence request delay_ms force(1|0) note
--   reply  {EVICTED fence closed_ms}  {NOT_YOURS reason}  {REFUSED remaining_ms}

-- include _state
-- include _sharing
-- include _turn
-- include _new_note

local owner, fence, request, delay, force = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
return turn(function()
    local victim = grant_of(owner)
    if not victim or victim.fence ~= fence then
        local known = tombstone(owner)
        if known and known.outcome == 'evicted' and known.detail == request then
            return {EVICTED, tonumber(known.fence), closed_ms()}
        end
        return {NOT_YOURS, why_not(owner, fence)}
    end
    local remaining = victim.expires - ms
    if delay < 0 then
        delay = remaining + victim.delay
    end
    if delay < remaining and not force then
        return {REFUSED, remaining}
    end
    add_note('evicted', owner, fence, ARGV[6])
    end_grant(victim)
    local minted = mint(0) -- above the victim's: a guard that is given it refuses the victim at once
    bury(owner, write_fence(minted), 'evicted', ms + keep(tonumber(victim.ttl)), request)
    close(victim, math.max(ms + delay, tonumber(victim.closed)))
    if victim.holder_address ~= '-' then
        publish(victim.holder_address, 'evicted', owner, fence, '0', string.format('%d', remaining), victim.slots)
    end
    return {EVICTED, minted, closed_ms()}
end)
