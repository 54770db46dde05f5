-- adopt: take over the grant with this fence and ticket: a new owner and a new fence, in one step.
--
--   ARGV   adopter fence ticket ttl_ms floor holder_address
--   reply  {GRANTED ...}, as of claim  {NOT_YOURS reason}  {REFUSED floor}: it is out of bounds

-- include _state
-- include _sharing
-- include _turn

local adopter, fence, ticket, ttl, floor, holder_address
    = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

-- Several owners may have left a record of that fence, also some that only believed that it was theirs: the grant
-- itself comes first.
local function why_not_at()
    local few = redis.call('HLEN', MORE) <= MANY_ENDED
    local found, all = {}, few and redis.call('HGETALL', MORE) or {}
    for at = 1, #all, 2 do
        local known = string.sub(all[at], 1, 1) ~= ':' and tombstone(all[at], all[at + 1])
        if known and known.fence == fence then
            found[known.outcome] = true
        end
    end
    for _, outcome in ipairs({'adopted', 'expired', 'withdrawn', 'released'}) do
        if found[outcome] then
            return outcome
        end
    end
    return why_not('', fence)
end

return turn(function()
    if wrong_floor(floor) then
        return {REFUSED, 'floor'}
    end
    local mine = grant_of(adopter)
    if mine and tonumber(mine.fence) > tonumber(fence) then -- repeated: an owner has one grant in its life
        return granted(mine, other_limit(mine))
    end
    local given = grant_at(fence)
    if not given then
        return {NOT_YOURS, why_not_at()}
    end
    if mine or tombstone(adopter) or waiter(adopter) or ticket == '-' or given.ticket ~= ticket then
        return {NOT_YOURS, 'taken'}
    end
    local heir = {owner = adopter, ttl = ttl, delay = given.delay, rule = given.rule, limit = given.limit,
                  holder_address = holder_address, repeated = '0', meta = given.meta, closed = given.closed}
    probe_write()
    end_grant(given)
    freed = false -- the place goes straight to the adopter
    local taken = seat(heir, mint(floor), given.slots)
    bury(given.owner, fence, 'adopted', ms + keep(tonumber(given.ttl)), adopter)
    return granted(taken, other_limit(taken))
end)
