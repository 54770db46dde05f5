-- inspect: look, without a claim. Who waits is listed only when that is wanted: the server does nothing else meanwhile.
--
--   ARGV   (nothing) queue(1|0)
--   reply  {VIEW now_ms closed_ms fence grant {owner waiter owner waiter ...} {note ...}}
--          grant, as texts: owner fence ttl expires renewals since closed delay news ticket meta; empty when nobody holds
--          waiter, note: as they are written down

-- include _state
-- include _turn

local queue = {}
if ARGV[2] == '1' then
    walk(function(one, raw)
        queue[#queue + 1] = one.owner
        queue[#queue + 1] = raw
        return false
    end)
end
local held = {}
if grant then
    held = {grant.owner, grant.fence, grant.ttl, text(grant.expires), grant.renewals, grant.since, grant.closed,
            grant.delay, grant.news, grant.ticket, grant.meta}
end
local notes = {}
for _, note in ipairs(redis.call('LRANGE', KEYS[7], 0, -1)) do
    if (tonumber(string.match(note, '^%d+')) or 0) + 30 * DAY_MS * 1000 > wall then
        notes[#notes + 1] = note
    end
end
return {VIEW, ms, math.max(door - ms, 0), last, held, queue, notes}
