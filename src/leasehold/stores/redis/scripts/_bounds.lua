-- The bounds of a record. Another program may have written what is found at a key: every field is bounded before it is
-- matched, and patterns are anchored, so that none of them reads a letter again and again (trap 52).

local MOST_BYTES = 16384 -- of a record: 4 kB of metadata and a thousand slots fit
local SHARED = {read = true, semaphore = true}

-- A number as we write it, or nil: to tonumber, 'inf', 'nan', '0x1' and '1e99' are numbers too.
local function whole(written)
    local number = written and #written <= 16 and string.find(written, '^%d+$') and tonumber(written)
    return number and number < 9007199254740992 and number or nil
end
