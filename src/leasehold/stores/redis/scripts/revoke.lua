-- revoke: ask the holder to give back. It decides; nothing is taken from it.
--
--   ARGV   owner fence
--   reply  {TOLD reached(1|0)}  {NOT_YOURS reason}

-- include _state
-- include _sharing
-- include _turn

local owner, fence = ARGV[1], ARGV[2]
return turn(function()
    local grant = grant_of(owner)
    if not grant or grant.fence ~= fence then
        return {NOT_YOURS, why_not(owner, fence)}
    end
    local heard = 0
    if grant.news ~= '-' then
        heard = publish(grant.news, 'revoke', owner, fence, '0', string.format('%d', grant.expires - ms), grant.slots)
    end
    return {TOLD, type(heard) == 'number' and heard > 0 and 1 or 0}
end)
