-- renew_many: the watchdog's plain renewals, hundreds in one call. Who is not found as it should be, or has more to it
-- than usual, is asked for alone. So is one of those who share what others wait for or watch, or what has a limit of its
-- own: a turn may have to hand on there, and keeps the limit. One turn is enough for all of them: each looks at everybody
-- who holds, and hundreds of turns would keep the server busy for longer than a renewal may take.
--
--   KEYS   owner meta holders queue watchers limit, for each
--   ARGV   owner fence ttl_ms number, for each
--   reply  {remaining_ms, ...}; -1: ask with renew

local call, match, find, format = redis.call, string.match, string.find, string.format
local time = call('TIME')
local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
local replies = {}
local turned = {} -- what somebody of this call takes a turn of
local length, ttl, ends, ends_text, owner_px, meta_px -- of those with the same ttl, which most have

-- The same record with a new end, or nil.
local function renewed(raw, at)
    local fence, expires, renewals, rest = match(raw or '', '^(%d+) %d+ (%d+) (%d+) (.*)$')
    if length ~= ARGV[at + 2] then
        length = ARGV[at + 2]
        ttl = tonumber(length)
        ends = ms + ttl
        ends_text = format('%.0f', ends)
        owner_px = format('%d', ttl - 1)
        meta_px = format('%d', ttl + math.max(ttl, 60000) - 1)
    end
    -- Not over, not shortened by this, no lock-delay and no closed door.
    if fence == ARGV[at + 1] and expires + 0 > ms and expires + 0 <= ends and find(rest, '^%d+ 0 0 ') then
        local number = ARGV[at + 3]
        if renewals + 0 > number + 0 then
            number = renewals
        end
        return fence .. ' ' .. length .. ' ' .. ends_text .. ' ' .. number .. ' ' .. rest
    end
end

-- One of those who share. The key of all of them, and the mark, must last as long.
local function renew_shared(key, at, taken)
    local raw = renewed(call('HGET', KEYS[key + 2], ARGV[at]), at)
    if not raw then
        return -1
    end
    if not turned[KEYS[key]] and call('EXISTS', KEYS[key + 3], KEYS[key + 4], KEYS[key + 5]) > 0 then
        turned[KEYS[key]] = true
        return -1
    end
    local rule, latest = match(taken, '^:(%l+) (%d+)$')
    if not rule then
        return -1
    end
    if ends > tonumber(latest) then
        call('PEXPIRE', KEYS[key], owner_px)
        call('SET', KEYS[key], ':' .. rule .. ' ' .. ends_text, 'PX', owner_px)
    end
    local over = math.max(call('PTTL', KEYS[key + 2]), ttl + math.max(ttl, 60000))
    call('PEXPIRE', KEYS[key + 2], format('%d', over)) -- before HSET, which a server without memory would refuse
    call('HSET', KEYS[key + 2], ARGV[at], raw)
    return ttl
end

for key = 1, #KEYS, 6 do
    local at = (key - 1) / 6 * 4 + 1
    local taken = call('GET', KEYS[key])
    local left = -1
    if taken == ARGV[at] then
        local raw = renewed(call('GET', KEYS[key + 1]), at)
        if raw then
            call('PEXPIRE', KEYS[key], owner_px)
            call('SET', KEYS[key + 1], raw, 'PX', meta_px)
            left = ttl
        end
    elseif taken and find(taken, '^:') then
        left = renew_shared(key, at, taken)
    end
    replies[#replies + 1] = left
end
return replies
