-- Keeps what an operator did to a grant, with the public part of its owner's token.
--
-- It comes before what it tells of: its key may be something else, or forbidden, and then nothing is done. Expired notes
-- are deleted, so that they take no place of others; and the key outlasts all of them, for the clock may have been set
-- back since an earlier one. Somebody who asks again and again leaves one note, of the last time.

local function add_note(event, owner, fence, said)
    local added = ' ' .. event .. ' ' .. fence .. ' '
        .. string.gsub(string.match(owner, '^(.*:.*):[^:]*$') or '?', '%s', '?') .. ' ' .. said
    local last = ''
    for _, note in ipairs(redis.call('LRANGE', KEYS[7], -20, -1)) do
        local at = whole(string.match(note, '^(%d+) '))
        if at and at + 30 * DAY_MS * 1000 <= wall then
            redis.call('LREM', KEYS[7], -1, note)
        else
            last = note
        end
    end
    if event == 'asked' and string.match(last, '^%d+( .*)$') == added then
        redis.call('LREM', KEYS[7], -1, last)
    end
    redis.call('LTRIM', KEYS[7], -19, -1)
    redis.call('RPUSH', KEYS[7], wall_text .. added)
    stretch(KEYS[7], ms + 30 * DAY_MS)
end
