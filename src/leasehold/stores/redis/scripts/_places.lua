-- Places of a resource: what is held, what is kept free, and which claims fit beside one another (_core/rules.py).

local seats -- how many there are of each rule, and which slots permits have; nil when a holder has left

local function count_seat(one)
    seats.all = seats.all + 1
    seats[one.rule] = (seats[one.rule] or 0) + 1
    if one.rule == 'semaphore' then
        for slot in string.gmatch(one.slots, '%d+') do
            slot = tonumber(slot)
            seats.permits = seats.permits + (seats.slots[slot] and 0 or 1)
            seats.slots[slot] = true
        end
    end
end

local function count_seats()
    if not seats then
        seats = {all = 0, permits = 0, slots = {}}
        for _, one in ipairs(grants) do
            count_seat(one)
        end
        for _, one in ipairs(doors) do
            count_seat(one)
        end
    end
    return seats
end

local stored -- the limit that a semaphore was resized to

local function read_limit()
    local raw = redis.call('HGET', MORE, ':limit')
    if not raw then
        return nil
    end
    local limit, until_ms = parse_limit(raw)
    if not limit then
        return unreadable(MORE, 'has a limit that is none')
    end
    return until_ms > ms and limit
end

local function limit_of(claim)
    if not stored then
        stored = read_limit() or 0
    end
    return stored > 0 and stored or tonumber(claim.limit)
end

-- It is kept until long after its last use; with 0 each claim goes by its own again.
local function keep_limit(limit)
    stored = limit
    if limit == 0 then
        redis.call('HDEL', MORE, ':limit')
        return
    end
    redis.call('HSET', MORE, ':limit', text(ms + 30 * DAY_MS) .. ' ' .. text(limit))
    stretch(MORE, ms + 30 * DAY_MS)
end

-- True when it wants more than there will ever be: it must not keep others waiting.
local function impossible(claim)
    return claim.rule == 'semaphore' and tonumber(claim.permits) > limit_of(claim)
end

local function too_many(claim)
    return {REFUSED, 'permits', tonumber(claim.permits), limit_of(claim)}
end

-- The limit that others go by, when it is not this one.
local function other_limit(claim)
    if claim.rule ~= 'semaphore' then
        return 0
    end
    local own, other = tonumber(claim.limit), 0
    limit_of(claim)
    if stored > 0 then
        return stored ~= own and stored or 0
    end
    for _, one in ipairs(grants) do
        local limit = tonumber(one.limit)
        if limit ~= own and limit > other then
            other = limit
        end
    end
    return other
end

-- The slots that a claim would fill, or nil (_core/rules.py).
local function fits(claim)
    local found = count_seats()
    if claim.rule ~= 'read' and claim.rule ~= 'semaphore' then
        return found.all == 0 and '0' or nil
    end
    if found.all ~= (found[claim.rule] or 0) then
        return nil
    end
    if claim.rule == 'read' then
        return '0'
    end
    local permits = tonumber(claim.permits)
    if found.permits + permits > limit_of(claim) then
        return nil
    end
    local slots, slot = {}, found.lowest or 0
    while #slots < permits do
        if not found.slots[slot] then
            slots[#slots + 1] = slot
        end
        slot = slot + 1
    end
    found.lowest = slots[1] -- none below it is free
    return table.concat(slots, ',')
end

local function grant_to(claim, fence, slots, top)
    count_seats()
    local grant = seat(claim, fence, slots, top)
    count_seat(grant)
    if claim.rule == 'semaphore' and limit_of(claim) and stored > 0 then
        keep_limit(stored)
    end
    return grant
end

local function grant_of(owner)
    for at, one in ipairs(grants) do
        if one.owner == owner then
            return one, at
        end
    end
end

local function grant_at(fence)
    for _, one in ipairs(grants) do
        if one.fence == fence then
            return one
        end
    end
end
