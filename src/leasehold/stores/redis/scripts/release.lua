-- release: give back. forget_ms: leave a tombstone; again: an earlier one of this grant went unanswered.
--
--   ARGV   owner fence forget_ms again(1|0)
--   reply  {RELEASED}  {NOT_YOURS reason}

local owner, fence, forget, again = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

-- Mostly nobody waits. The keys: owner fence meta queue waiters ended, as _state says.
if forget == 0 and redis.call('GET', KEYS[1]) == owner and redis.call('EXISTS', KEYS[4]) == 0 then
    local given, closed = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) %d+ %d+ %d+ %d+ (%d+) ')
    if given == fence and closed == '0' then
        redis.call('DEL', KEYS[1], KEYS[3])
        return {6} -- RELEASED
    end
end

-- include _state
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
clear_up()
return ours and {RELEASED} or {NOT_YOURS, outcome}
