-- vote: a claim on one node of a Redlock, and what says whether its reply counts. The marker is read after the claim: a
-- node that was flushed in between has lost the grant, and shows it.
--
--   KEYS   those of claim, and the marker
--   ARGV   those of claim, and longest_ttl_ms
--   reply  {reply of claim, since_us, now_us, longest_ttl_ms}: as _marker says

local function claim()
-- include claim
end

local reply = claim()
if reply.err then
    return reply
end
local marker, announced, refresh = KEYS[7], tonumber(ARGV[7]), false
-- include _marker
return {reply, since, now, longest}
