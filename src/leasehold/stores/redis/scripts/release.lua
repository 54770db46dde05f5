-- release: give back. forget_ms: leave a tombstone; again: an earlier one of this grant went unanswered.
--
--   ARGV   owner fence forget_ms again(1|0)
--   reply  {RELEASED}  {NOT_YOURS reason}

-- include _state

local owner, fence, forget, again = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

-- Mostly nobody waits.
if forget == 0 and redis.call('GET', OWNER) == owner and redis.call('EXISTS', QUEUE) == 0 then
    local given, closed = string.match(redis.call('GET', META) or '', '^(%d+) %d+ %d+ %d+ %d+ (%d+) ')
    if given == fence and closed == '0' then
        redis.call('DEL', OWNER, META)
        return {RELEASED}
    end
end

-- include _turn

local ours = holder == owner and grant.fence == fence
if ours then
    local closed = tonumber(grant.closed)
    end_grant()
    close_until(closed)
end
local known = tombstone(owner)
if known then
    ours = ours or known.outcome == 'released'
else
    ours = ours or again
end
local outcome = ours and 'released' or why_not(owner, fence)
if forget > 0 and holder ~= owner then
    leave(owner)
    bury(owner, fence, outcome, ms + forget)
end
hand_on()
return ours and {RELEASED} or {NOT_YOURS, outcome}
