-- The audit notes of operators, as they are stored: one that is no note is returned too, and the client reports it.

local MOST_NOTES, NOTE_BYTES = 20, 8192

local function read_notes()
    local found = redis.pcall('LRANGE', KEYS[7], -MOST_NOTES, -1)
    if found.err then
        if not string.find(found.err, 'WRONGTYPE', 1, true) then
            error(found.err, 0) -- not allowed, for one
        end
        unreadable(KEYS[7], 'is no list')
        return {}
    end
    local notes = {}
    for _, note in ipairs(found) do
        local at = whole(string.match(string.sub(note, 1, 17), '^(%d+) '))
        if not at or at + 30 * DAY_MS * 1000 > wall then
            notes[#notes + 1] = string.sub(note, 1, NOTE_BYTES)
        end
    end
    return notes
end
