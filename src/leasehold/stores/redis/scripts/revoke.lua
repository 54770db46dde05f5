-- revoke: request the holder to release. The holder decides; nothing is taken from it. The note is
-- kept, with the public part of its owner.
--
--   ARGV   owner fence note
--   reply  {TOLD reached(1|0)}  {NOT_YOURS reason}

-- include _state
-- include _sharing
-- include _turn
-- include _new_note

local owner, fence = ARGV[1], ARGV[2]
return turn(function()
    local grant = grant_of(owner)
    if not grant or grant.fence ~= fence then
        return {NOT_YOURS, why_not(owner, fence)}
    end
    add_note('asked', owner, fence, ARGV[3])
    local receivers = 0
    if grant.holder_address ~= '-' then
        local left = string.format('%d', grant.expires - ms)
        receivers = publish(grant.holder_address, 'revoke', owner, fence, '0', left, grant.slots)
    end
    return {TOLD, type(receivers) == 'number' and receivers > 0 and 1 or 0}
end)
