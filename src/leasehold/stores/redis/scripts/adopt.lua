-- adopt: take over a grant whose fence and ticket one knows: a new owner, a new fence, in one step.
--
--   ARGV   adopter fence ticket ttl_ms floor news
--   reply  {GRANTED fence remaining_ms}  {NOT_YOURS reason}  {REFUSED floor}: it is out of bounds

-- include _state
-- include _turn

local adopter, fence, ticket, ttl, floor, news = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

-- Several may have left a record of that fence, also those who only believed that it was theirs: what the ledger itself
-- says of a grant comes first.
local function why_not_at()
    local found, all = {}, any_ended and redis.call('HGETALL', ENDED) or {}
    for at = 1, #all, 2 do
        local known = all[at] ~= ':closed' and tombstone(all[at])
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

if wrong_floor(floor) then
    return {REFUSED, 'floor'}
end
if holder == adopter and tonumber(grant.fence) > tonumber(fence) then -- asked again: an owner has one grant in its life
    return {GRANTED, tonumber(grant.fence), grant.expires - ms}
end
if not holder or grant.fence ~= fence then
    return {NOT_YOURS, why_not_at()}
end
if holder == adopter or tombstone(adopter) or waiter(adopter) or ticket == '-' or grant.ticket ~= ticket then
    return {NOT_YOURS, 'taken'}
end
local given = grant
seat(adopter, mint(floor), ttl, given.delay, news, given.meta)
grant.closed = given.closed
write_grant()
bury(given.owner, fence, 'adopted', ms + keep(tonumber(given.ttl)), adopter)
return {GRANTED, last, tonumber(ttl)}
