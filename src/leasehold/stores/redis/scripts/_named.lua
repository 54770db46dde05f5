-- Comes after every script that has keys, and runs it: when a key has the wrong type, the error names that key.
--
--   reply  as of the script; error UNREADABLE part why: that key holds something that is no record

local done, reply = pcall(script)
if done then
    return reply
end
local why = type(reply) == 'table' and reply.err or reply
if string.find(why, 'WRONGTYPE', 1, true) then
-- include _kinds
    for _, key in ipairs(KEYS) do
        local wrong = wrong_kind(key)
        if wrong then
            return {err = 'UNREADABLE ' .. string.match(key, '%l+$') .. ' ' .. wrong}
        end
    end
end
error(reply, 0)
