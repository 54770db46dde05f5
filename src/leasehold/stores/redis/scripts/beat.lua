-- beat: shows that a waiter is alive. Never creates.
--
--   ARGV   owner beat floor
--   reply  {GRANTED ...}  {QUEUED ...}  {GONE outcome}  {REFUSED permits permits limit}, as of claim

-- include _state
-- include _sharing
-- include _turn

local owner, beat, floor = ARGV[1], ARGV[2], tonumber(ARGV[3])
return turn(function()
    if grant_of(owner) then
        return standing(owner)
    end
    local known = tombstone(owner)
    if known then
        return {GONE, known.outcome}
    end
    if blocked then
        return blocked
    end
    local one = waiter(owner)
    if not one then
        return {GONE, 'unknown'}
    end
    if impossible(one) then
        freed = leave(owner)
        return too_many(one)
    end
    if record_beat(one, beat, wrong_floor(floor) and 0 or floor) then
        hand_on(owner)
    end
    return standing(owner, one)
end)
