-- release_all: several releases in one step.
--
--   KEYS   those of release, for each
--   ARGV   those of release, for each
--   reply  {REPLIES reply ...}, as of release

local function release(KEYS, ARGV)
-- include release
end

local REPLIES, NAMES, VALUES = 15, 6, 4
local replies = {REPLIES}
for at = 0, #KEYS / NAMES - 1 do
    local names = {unpack(KEYS, at * NAMES + 1, (at + 1) * NAMES)}
    replies[#replies + 1] = release(names, {unpack(ARGV, at * VALUES + 1, (at + 1) * VALUES)})
end
return replies
