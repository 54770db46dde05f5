-- Records, parsed from the form that _state describes; nil for what is no record. Comes after _bounds.

local KNOWN = {mutex = true, write = true, read = true, semaphore = true}
local TOO_LONG = '%d%d%d%d%d' -- no slot, and no number of permits: there are a thousand at most
local MOST_DOORS_BYTES, MOST_FLOOR = 65536, 9007112854740992

local function are_slots(rule, slots)
    if rule ~= 'semaphore' then
        return slots == '0'
    end
    return not string.find(slots, TOO_LONG) and not string.find(',' .. slots .. ',', ',,', 1, true)
end

-- A grant of `meta`, or with `shared` one of those in `holders`.
local function parse_grant(raw, shared)
    if #raw > MOST_BYTES then
        return nil
    end
    local fence, ttl, expires, renewals, since, closed, delay, rule, limit, slots, holder_address, ticket, owner, meta
        = string.match(raw, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%l+) (%d+) ([%d,]+) (%S+) (%S+) (%S+) ?(.*)$')
    if not fence or not KNOWN[rule] or (SHARED[rule] or false) ~= shared or not are_slots(rule, slots)
        or not whole(fence) or #ttl > 16 or #expires > 16 or #renewals > 16 or #since > 16 or #closed > 16
        or #delay > 16 or #limit > 16 then
        return nil
    end
    return {owner = owner, fence = fence, ttl = ttl, expires = tonumber(expires), renewals = renewals, since = since,
            closed = closed, delay = delay, rule = rule, limit = limit, slots = slots,
            holder_address = holder_address, ticket = ticket, meta = meta, order = tonumber(fence)}
end

-- Of `waiters`.
local function read_waiter(owner, raw)
    if #raw > MOST_BYTES or #owner > MOST_BYTES or not string.find(owner, '^[^:%s]%S*$') then
        return nil
    end
    local beat, beat_ms, ttl, floor, since, delay, rule, permits, limit, address, holder_address, meta = string.match(
        raw, '^(%-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%l+) (%d+) (%d+) (%S+) (%S+) ?(.*)$')
    if not beat or not KNOWN[rule] or #permits > 4 or permits + 0 < 1 or #limit > 4 or #beat > 17 or #beat_ms > 16
        or #ttl > 16 or #floor > 16 or floor + 0 > MOST_FLOOR or #since > 16 or #delay > 16 then
        return nil
    end
    return {owner = owner, beat = beat, beat_ms = tonumber(beat_ms), ttl = ttl, floor = floor, since = since,
            delay = delay, rule = rule, permits = permits, limit = limit, address = address,
            holder_address = holder_address, meta = meta}
end

-- Of `:closed` in `ended`: until when, and how far ahead that was.
local function parse_closed(raw)
    local until_ms, length = string.match(#raw <= 33 and raw or '', '^(%d+) (%d+)$')
    until_ms, length = whole(until_ms), whole(length)
    if until_ms and length then
        return until_ms, length
    end
end

-- Of `:doors` in `ended`: a list of rule, slots, until_ms, length, and whether there is more that is no door. Word by
-- word; the first is the latest of their ends.
local function parse_doors(raw)
    local found, strange = {}, false
    for word in string.gmatch(#raw <= MOST_DOORS_BYTES and raw or '?', '%S+') do
        local rule, slots, until_ms, length = string.match(word, '^(%l+):([%d,]+):(%d+):(%d+)$')
        until_ms, length = whole(until_ms), whole(length)
        if rule and SHARED[rule] and are_slots(rule, slots) and until_ms and length then
            found[#found + 1] = {rule = rule, slots = slots, until_ms = until_ms, length = length}
        elseif not whole(word) then
            strange = true
        end
    end
    return found, strange
end
