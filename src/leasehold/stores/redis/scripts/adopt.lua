-- adopt: take over a grant whose ticket one knows: a new owner, a new fence, in one step.
--
--   ARGV   owner fence ticket adopter ttl_ms floor news
--   reply  {GRANTED fence remaining_ms}  {NOT_YOURS reason}  {REFUSED floor}: it is out of bounds

-- include _state
-- include _turn

local owner, fence, ticket, adopter, ttl, floor, news = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5],
    tonumber(ARGV[6]), ARGV[7]
if wrong_floor(floor) then
    return {REFUSED, 'floor'}
end
local known = tombstone(owner)
if holder == adopter and known and known.fence == fence and known.detail == adopter then -- asked again
    return {GRANTED, tonumber(grant.fence), grant.expires - ms}
end
if holder ~= owner or grant.fence ~= fence then
    return {NOT_YOURS, why_not(owner, fence)}
end
if holder == adopter or tombstone(adopter) or waiter(adopter) or ticket == '-' or grant.ticket ~= ticket then
    return {NOT_YOURS, 'taken'}
end
local given = grant
seat(adopter, mint(floor), ttl, given.delay, news, given.meta)
grant.closed = given.closed
write_grant()
bury(owner, fence, 'adopted', ms + keep(tonumber(given.ttl)), adopter)
return {GRANTED, last, tonumber(ttl)}
