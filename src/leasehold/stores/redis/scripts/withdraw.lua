-- withdraw: whatever this owner has here, waiting or granted, ends. forget_ms: leave a tombstone.
--
--   ARGV   owner forget_ms
--   reply  {WITHDRAWN held|queued|nothing}

-- include _state
-- include _turn

local owner, forget = ARGV[1], tonumber(ARGV[2])
local what, fence = 'nothing', '0'
if holder == owner then
    what, fence = 'held', grant.fence
    end_grant()
elseif waiter(owner) then
    what = 'queued'
    leave(owner)
end
if forget > 0 then
    bury(owner, fence, 'withdrawn', ms + forget)
end
hand_on()
clear_up()
return {WITHDRAWN, what}
