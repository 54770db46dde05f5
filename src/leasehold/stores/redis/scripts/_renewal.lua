-- A plain renewal of a shared grant, without a turn: there are no waiters and no watchers, which would need a push for
-- what has ended meanwhile; and there is no stored limit, which a turn would keep.

local call, match, find, format = redis.call, string.match, string.find, string.format
local ms, length, ttl, ends, ends_text, owner_px -- of grants with the same ttl, which most have

-- The record with a new end; nil if it is over, or would be shortened by this, or has a lock-delay or a closed door.
-- And whether its end was too far ahead: later than the new one, though it was set with no longer a ttl, because the
-- clock was set back since.
local function renewed(raw, fence, ttl_ms, number)
    if length ~= ttl_ms then
        length, ttl = ttl_ms, tonumber(ttl_ms)
        ends = ms + ttl
        ends_text = format('%.0f', ends)
        owner_px = format('%d', ttl - 1)
    end
    local given, before, expires, renewals, rest = match(type(raw) == 'string' and #raw <= 16384 and raw or '',
        '^(%d+) (%d+) (%d+) (%d+) (.*)$')
    local later = given == fence and expires + 0 > ends
    if given == fence and expires + 0 > ms and not (later and before + 0 > ttl) and find(rest, '^%d+ 0 0 ') then
        if renewals + 0 > number + 0 then
            number = renewals
        end
        return fence .. ' ' .. length .. ' ' .. ends_text .. ' ' .. number .. ' ' .. rest, later
    end
end

-- What remains, or -1. The key of all of them, and the mark, must last as long. The first write adds nothing: a server
-- without memory would refuse it.
-- `turned`: the resources that take a turn in this call. One turn is enough for all their grants: hundreds of turns,
-- each of which reads all holders, would keep the server busy for longer than a renewal may take.
local function renew_shared(mark, owner_key, holders_key, queue_key, watchers_key, more_key, turned, owner, fence, ttl_ms,
    number)
    local rule, latest, more = match(mark, '^(:%l+ )(%d+)(.*)$')
    if not rule then
        return -1
    end
    local raw, later = renewed(redis.pcall('HGET', holders_key, owner), fence, ttl_ms, number)
    if not raw then
        return -1
    end
    if not turned[owner_key] and (later or call('EXISTS', queue_key, watchers_key) > 0
        or redis.pcall('HGET', more_key, ':limit')) then -- a turn puts the mark right, too
        turned[owner_key] = true
        return -1
    end
    local over = math.max(call('PTTL', holders_key), ttl + math.max(ttl, 60000))
    call('PEXPIRE', holders_key, format('%d', over))
    call('HSET', holders_key, owner, raw)
    if ends > tonumber(latest) then
        call('SET', owner_key, rule .. ends_text .. more, 'PX', owner_px)
    end
    return ttl
end
