-- Records, parsed from the form that _state describes; nil for what is no record. Comes after _bounds.

local KNOWN = {mutex = true, write = true, read = true, semaphore = true}
local TOO_LONG = '%d%d%d%d%d' -- no slot, and no number of permits: there are a thousand at most
local MOST_DOORS_BYTES, MOST_FLOOR = 65536, 9007112854740992
local MOST_PATIENCE = 3000 -- policy.patience_ms

local function patience(ttl)
    return math.min(tonumber(ttl), MOST_PATIENCE)
end

local function are_slots(rule, slots)
    if rule ~= 'semaphore' then
        return slots == '0'
    end
    return not string.find(slots, TOO_LONG) and not string.find(',' .. slots .. ',', ',,', 1, true)
end

-- The grant in the owner's key. Its end is that of the key.
local function parse_alone(raw)
    local fence, owner, ttl, number, flag, holder_address, rule, since, meta = string.match(
        #raw <= MOST_BYTES and raw or '', '^(%d+) (%S+) (%d+) (%d+) ([0-4]) (%S+) (%l+) (%d+) (.*)$')
    if not fence or not whole(fence) or not (rule == 'mutex' or rule == 'write') or #ttl > 16 or #number > 16
        or #since > 16 then
        return nil
    end
    return {owner = owner, fence = fence, ttl = ttl, number = number, flag = flag, since = since, closed = '0',
            delay = '0', repeated = '0', ticket = '-', rule = rule, limit = '0', slots = '0',
            holder_address = holder_address, tell = flag == '3' or flag == '4', meta = meta}
end

-- Of ':grant' in `more`: what the owner's key does not say of a grant, or what is left of one that is gone.
local function parse_special(raw)
    local fence, ttl, expires, closed, delay, repeated, ticket, owner = string.match(
        #raw <= MOST_BYTES and raw or '', '^%d+ (%d+) (%d+) (%d+) (%d+) (%d+) ([01]) (%S+) (%S+)$')
    if not fence or not whole(fence) or #ttl > 16 or #expires > 16 or #closed > 16 or #delay > 16 then
        return nil
    end
    return {owner = owner, fence = fence, ttl = ttl, expires = tonumber(expires), closed = closed, delay = delay,
            repeated = repeated, ticket = ticket, rule = 'mutex', slots = '0'}
end

-- Of `holders`.
local function parse_shared(raw)
    if #raw > MOST_BYTES then
        return nil
    end
    local fence, ttl, expires, number, since, closed, delay, repeated, rule, limit, slots, holder_address, ticket, owner,
        meta = string.match(raw,
        '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([01]) (%l+) (%d+) ([%d,]+) (%S+) (%S+) (%S+) ?(.*)$')
    if not fence or not SHARED[rule] or not are_slots(rule, slots) or not whole(fence) or #ttl > 16 or #expires > 16
        or #number > 16 or #since > 16 or #closed > 16 or #delay > 16 or #limit > 16 then
        return nil
    end
    return {owner = owner, fence = fence, ttl = ttl, expires = tonumber(expires), number = number, since = since,
            closed = closed, delay = delay, repeated = repeated, rule = rule, limit = limit, slots = slots,
            holder_address = holder_address, ticket = ticket, meta = meta, order = tonumber(fence)}
end

-- Of an owner in `more` that waits. Its place is kept for ten patiences after its last beat.
local function parse_waiter(owner, raw)
    if #raw > MOST_BYTES or #owner > MOST_BYTES or not string.find(owner, '^[^:%s]%S*$') then
        return nil
    end
    local until_ms, repeated, beat, ttl, floor, since, delay, rule, permits, limit, address, holder_address, meta = string.match(
        raw, '^(%d+) waiting ([01]) (%-?%d+) (%d+) (%d+) (%d+) (%d+) (%l+) (%d+) (%d+) (%S+) (%S+) ?(.*)$')
    if not beat or not KNOWN[rule] or #permits > 4 or permits + 0 < 1 or #limit > 4 or #beat > 17 or #until_ms > 16
        or #ttl > 16 or #floor > 16 or floor + 0 > MOST_FLOOR or #since > 16 or #delay > 16 then
        return nil
    end
    return {owner = owner, repeated = repeated, beat = beat, beat_ms = until_ms - 1 - 10 * patience(ttl), ttl = ttl, floor = floor, since = since,
            delay = delay, rule = rule, permits = permits, limit = limit, address = address,
            holder_address = holder_address, meta = meta}
end

-- Of ':closed' in `more`: until when, and how far ahead that was.
local function parse_closed(raw)
    local until_ms, length = string.match(#raw <= 33 and raw or '', '^(%d+) (%d+)$')
    until_ms, length = whole(until_ms), whole(length)
    if until_ms and length then
        return until_ms, length
    end
end

-- Of ':limit' in `more`.
local function parse_limit(raw)
    local until_ms, limit = parse_closed(raw)
    return limit, until_ms
end

-- Of ':doors' in `more`: a list of rule, slots, until_ms, length, and whether there is more that is no door. Word by
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
