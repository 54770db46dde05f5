-- The marker of a node for Redlock: since when, at the latest, it has kept its data, and the longest ttl that any client
-- may use. A node without a marker was flushed, or is new: it gets one, and counts as empty until that is old enough.
--
--   `marker`    its key
--   `announced` the longest ttl of the client that sends this, in ms
--   `refresh`   true: it lives for another year
-- They give `since` and `now` in µs of this node, and `longest` in ms. A marker from the future says that the clock was
-- set back: nobody knows how old it is.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kept = redis.pcall('GET', marker)
kept = type(kept) == 'string' and #kept <= 33 and kept or ''
local since, longest = string.match(kept, '^(%d+) (%d+)$')
since, longest = tonumber(since or now), tonumber(longest or 0)
if kept == '' or since > now or longest < announced or refresh then
    since, longest = math.min(since, now), math.max(longest, announced)
    redis.pcall('SET', marker, string.format('%.0f %.0f', since, longest), 'PX', '31536000000') -- refused without memory
end
