-- claim_all: several claims in one step, in order, and none after the first that is not granted. An error of a later
-- one ends it as well: a claim of that one alone then gets the error.
--
--   KEYS   those of claim, for each
--   ARGV   those of claim, for each
--   reply  {REPLIES reply ...}, as of claim

local function claim(KEYS, ARGV)
-- include claim
end

local REPLIES, NAMES, VALUES, IS_GRANTED = 15, 6, 6, 1
local replies = {REPLIES}
for at = 0, #KEYS / NAMES - 1 do
    local names = {unpack(KEYS, at * NAMES + 1, (at + 1) * NAMES)}
    local values = {unpack(ARGV, at * VALUES + 1, (at + 1) * VALUES)}
    local done, reply = at == 0, nil
    if done then
        reply = claim(names, values)
    else
        done, reply = pcall(claim, names, values)
    end
    if done and at == 0 and reply.err then
        return reply
    end
    if not done or reply.err then
        break
    end
    replies[#replies + 1] = reply
    if reply[1] ~= IS_GRANTED then
        break
    end
end
return replies
