-- beat: a waiter's sign of life. Never creates.
--
--   ARGV   owner beat floor
--   reply  {GRANTED fence remaining_ms}  {QUEUED ahead free_in_ms holder pushable(1|0)}  {GONE outcome}

-- include _state
-- include _turn

local owner, beat, floor = ARGV[1], ARGV[2], tonumber(ARGV[3])
if holder == owner then
    return standing(owner)
end
local known = tombstone(owner)
if known then
    return {GONE, known.outcome}
end
local one = waiter(owner)
if not one then
    return {GONE, 'unknown'}
end
if hear(one, beat, wrong_floor(floor) and 0 or floor) then
    hand_on(owner)
end
return standing(owner, one)
