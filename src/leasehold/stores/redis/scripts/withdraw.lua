-- withdraw: end all that this owner has here, waiting, granted or watching. forget_ms: leave a tombstone.
--
--   ARGV   owner forget_ms
--   reply  {WITHDRAWN held|queued|nothing}

-- include _state
-- include _sharing
-- include _turn

local owner, forget = ARGV[1], tonumber(ARGV[2])
return turn(function()
    local what, fence = 'nothing', '0'
    local grant = grant_of(owner)
    if grant then
        what, fence = 'held', grant.fence
        end_grant(grant)
    elseif waiter(owner) then
        what, freed = 'queued', leave(owner)
    end
    if watched then
        redis.call('HDEL', WATCHERS, owner)
    end
    if forget > 0 then
        bury(owner, fence, 'withdrawn', ms + forget)
    end
    return {WITHDRAWN, what}
end)
