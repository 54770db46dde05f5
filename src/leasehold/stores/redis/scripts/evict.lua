-- evict: take a grant away. Its place stays closed for delay_ms; -1: for what remained of the victim's time, and less
-- than that needs force. Idempotent by request. The note is kept, with the public part of the victim's owner.
--
--   ARGV   owner fence request delay_ms force(1|0) note
--   reply  {EVICTED fence closed_ms}  {NOT_YOURS reason}  {REFUSED remaining_ms}

-- include _state
-- include _sharing
-- include _turn

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
    -- The note comes first: its key may be something else, or forbidden, and then there is no eviction. Expired notes
    -- are deleted, so that they take no place of others; and the key outlasts all of them, for the clock may have been
    -- set back since an earlier one.
    for _, note in ipairs(redis.call('LRANGE', KEYS[7], -20, -1)) do
        local at = whole(string.match(note, '^(%d+) '))
        if at and at + 30 * DAY_MS * 1000 <= wall then
            redis.call('LREM', KEYS[7], -1, note)
        end
    end
    redis.call('LTRIM', KEYS[7], -19, -1)
    redis.call('RPUSH', KEYS[7], wall_text .. ' evicted ' .. fence .. ' '
        .. string.gsub(string.match(owner, '^(.*:.*):[^:]*$') or '?', '%s', '?') .. ' ' .. ARGV[6])
    stretch(KEYS[7], ms + 30 * DAY_MS)
    end_grant(victim)
    local minted = mint(0) -- above the victim's: a guard that is given it refuses the victim at once
    bury(owner, write_fence(minted), 'evicted', ms + keep(tonumber(victim.ttl)), request)
    close(victim, math.max(ms + delay, tonumber(victim.closed)))
    if victim.holder_address ~= '-' then
        publish(victim.holder_address, 'evicted', owner, fence, '0', string.format('%d', remaining), victim.slots)
    end
    return {EVICTED, minted, closed_ms()}
end)
