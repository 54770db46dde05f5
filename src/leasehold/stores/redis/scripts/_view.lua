-- One resource as others may see it.
--
--   reply  {VIEW now_ms closed_ms fence {grant ...} {owner waiter owner waiter ...} {note ...} {door ...} limit
--          {unreadable ...}}
--          grant: fields as in the key, each a text; door: rule slots until length; waiter, note: as written
--          unreadable: key why blocks(1|0), of what strangers wrote; 1: nobody is granted until it is gone

local MOST_NOTES, NOTE_BYTES = 20, 8192

-- Notes are what people wrote: a record that is none of ours is handed on, for the client to say so.
local function read_notes()
    local found = redis.pcall('LRANGE', KEYS[10], -MOST_NOTES, -1)
    if found.err then
        if not string.find(found.err, 'WRONGTYPE', 1, true) then
            error(found.err, 0) -- not allowed, for one
        end
        unreadable(KEYS[10], 'is no list')
        return {}
    end
    local notes = {}
    for _, note in ipairs(found) do
        local at = whole(string.match(note, '^(%d+) '))
        if not at or at + 30 * DAY_MS * 1000 > wall then
            notes[#notes + 1] = string.sub(note, 1, NOTE_BYTES)
        end
    end
    return notes
end

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
