-- One resource as others may see it.
--
--   reply  {VIEW now_ms closed_ms fence {grant ...} {owner waiter owner waiter ...} {note ...} {door ...} limit
--          {unreadable ...}}
--          grant: fields as in the key, each a text; door: rule slots until length; waiter, note: as written
--          unreadable: key why blocks(1|0), of what other programs wrote; 1: no claim is granted until it is gone

-- include _notes

local function view(queue)
    local held, places = {}, {}
    for _, one in ipairs(grants) do
        held[#held + 1] = listed(one)
    end
    for _, one in ipairs(doors) do
        places[#places + 1] = {one.rule, one.slots, text(one.until_ms), text(one.length)}
    end
    limit_of({limit = 0})
    local notes = read_notes()
    return {VIEW, ms, math.max(door - ms, 0), last, held, queue, notes, places, stored, strange}
end
