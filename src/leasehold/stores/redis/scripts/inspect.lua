-- inspect: look, without a claim.
--
--   reply  {VIEW now_ms closed_ms fence grant {owner waiter owner waiter ...}}
--          grant, as texts: owner fence ttl expires renewals since closed delay news ticket meta; empty when nobody holds
--          waiter: as it is written down

-- include _state
-- include _turn

local queue = {}
walk(function(one)
    queue[#queue + 1] = one.owner
    queue[#queue + 1] = redis.call('HGET', WAITERS, one.owner)
    return false
end)
local held = {}
if grant then
    held = {grant.owner, grant.fence, grant.ttl, text(grant.expires), grant.renewals, grant.since, grant.closed,
            grant.delay, grant.news, grant.ticket, grant.meta}
end
return {VIEW, ms, math.max(door - ms, 0), last, held, queue}
