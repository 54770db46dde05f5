-- One resource as others may see it.
--
--   reply  {VIEW now_ms closed_ms fence {grant ...} {owner waiter owner waiter ...} {note ...} {door ...} limit}
--          grant: fields as in the key, each a text; door: rule slots until; waiter, note: as they are written down

local function view(queue)
    local held, places, notes = {}, {}, {}
    for _, one in ipairs(grants) do
        held[#held + 1] = {one.owner, one.fence, one.ttl, text(one.expires), one.renewals, one.since, one.closed,
                           one.delay, one.rule, one.limit, one.slots, one.news, one.ticket, one.meta}
    end
    for _, one in ipairs(doors) do
        places[#places + 1] = {one.rule, one.slots, text(one.until_ms)}
    end
    for _, note in ipairs(redis.call('LRANGE', KEYS[10], 0, -1)) do
        if (tonumber(string.match(note, '^%d+')) or 0) + 30 * DAY_MS * 1000 > wall then
            notes[#notes + 1] = note
        end
    end
    limit_of({limit = 0})
    return {VIEW, ms, math.max(door - ms, 0), last, held, queue, notes, places, stored}
end
