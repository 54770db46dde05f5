-- What has ended: closed doors, tombstones, and the keys of whoever is gone (core/records.py).

local function close_until(until_ms)
    if until_ms > ms and until_ms > door then
        door = until_ms
        more = true
        insist()
        redis.call('HSET', ENDED, ':closed', text(door) .. ' ' .. text(door - ms))
        stretch(ENDED, door)
    end
end

local function write_doors()
    local latest, written = 0, {}
    for _, one in ipairs(doors) do
        latest = math.max(latest, one.until_ms)
        written[#written + 1] = one.rule .. ':' .. one.slots .. ':' .. text(one.until_ms) .. ':' .. text(one.length)
    end
    more = true
    insist()
    if latest == 0 then
        redis.call('HDEL', ENDED, ':doors')
        return
    end
    redis.call('HSET', ENDED, ':doors', text(latest) .. ' ' .. table.concat(written, ' '))
    stretch(ENDED, latest)
end

-- When a door opens: never further ahead than its length, for the clock may have been set back. 0: it is over.
local function opens(until_ms, length)
    until_ms = math.min(until_ms, ms + length)
    return until_ms > ms and until_ms or 0
end

local function read_closed(written)
    local until_ms, length = string.match(#written <= 33 and written or '', '^(%d+) (%d+)$')
    if not (whole(until_ms) and whole(length)) then
        unreadable(ENDED, 'has a time in :closed that is none', true)
        return
    end
    local left = opens(tonumber(until_ms), tonumber(length))
    if left == 0 then
        redis.call('HDEL', ENDED, ':closed')
    elseif left < tonumber(until_ms) then
        close_until(left)
    else
        door = left
    end
end

-- Word by word: a pattern that may begin anywhere would look at every letter of a long one again and again (trap 52).
-- What is over is taken away, so that it does not come back when the clock is set back.
local function read_doors(closed, written)
    if closed then
        read_closed(closed)
    end
    written = written or ''
    local same = true
    for word in string.gmatch(#written <= MOST_DOORS_BYTES and written or '?', '%S+') do
        local rule, slots, until_ms, length = string.match(word, '^(%l+):([%d,]+):(%d+):(%d+)$')
        if rule and SHARED[rule] and are_slots(rule, slots) and whole(until_ms) and whole(length) then
            local left = opens(tonumber(until_ms), tonumber(length))
            same = same and left == tonumber(until_ms)
            if left > 0 then
                doors[#doors + 1] = {rule = rule, slots = slots, until_ms = left, length = tonumber(length)}
            end
        elseif not whole(word) then -- the first word is the latest of their ends
            unreadable(ENDED, 'has a place in :doors that is none', true)
            return
        end
    end
    if not same then
        write_doors()
    end
end

-- What this grant had is given to nobody until then: what was alone, all of it; else its own slots.
local function close(grant, until_ms)
    if until_ms <= ms then
        return
    end
    if not SHARED[grant.rule] then
        close_until(until_ms)
        return
    end
    seats = nil
    for _, one in ipairs(doors) do
        if one.rule == grant.rule and one.slots == grant.slots then
            if until_ms > one.until_ms then
                one.until_ms, one.length = until_ms, until_ms - ms
                write_doors()
            end
            return
        end
    end
    doors[#doors + 1] = {rule = grant.rule, slots = grant.slots, until_ms = until_ms, length = until_ms - ms}
    write_doors()
end

-- For how long some place is given to nobody.
local function closed_ms()
    local latest = door
    for _, one in ipairs(doors) do
        latest = math.max(latest, one.until_ms)
    end
    return math.max(latest - ms, 0)
end

local function tombstone(owner, known)
    local raw = known or more and redis.call('HGET', ENDED, owner)
    if not raw then
        return nil
    end
    local until_ms, fence, outcome, detail = string.match(raw, '^(%d+) (%d+) (%S+) ?(.*)$')
    if not until_ms or #raw > MOST_BYTES or not whole(fence) or (whole(until_ms) or 0) <= ms then
        return nil
    end
    return {until_ms = tonumber(until_ms), fence = fence, outcome = outcome, detail = detail}
end

-- Those past their time are thrown away now and then: nobody else does it while others are added.
local function sweep_ended()
    local count = redis.call('HLEN', ENDED)
    if count % (count > MANY_ENDED and MANY_ENDED or MOST_ENDED) ~= 0 then -- where there are many, it takes long
        return
    end
    local all = redis.call('HGETALL', ENDED)
    for at = 1, #all, 2 do
        local until_ms = string.match(all[at + 1], '^%d+') -- none: a door that nobody can read stays where it is
        if until_ms and tonumber(until_ms) <= ms or not until_ms and string.sub(all[at], 1, 1) ~= ':' then
            redis.call('HDEL', ENDED, all[at])
        end
    end
end

-- Leave a tombstone. The first outcome stays; only its time can grow.
local function bury(owner, fence, outcome, until_ms, detail)
    if until_ms <= ms then
        return
    end
    local known = tombstone(owner)
    if known and known.until_ms >= until_ms then
        return
    end
    known = known or {fence = fence, outcome = outcome, detail = detail or ''}
    more = true
    insist()
    redis.call('HSET', ENDED, owner, text(until_ms) .. ' ' .. known.fence .. ' ' .. known.outcome .. ' '
        .. known.detail)
    stretch(ENDED, until_ms)
    sweep_ended()
end

local function why_not(owner, fence)
    local known = tombstone(owner)
    if known then
        return known.outcome
    end
    return (#grants > 0 or last > tonumber(fence)) and 'taken' or 'deleted'
end

-- The keys of whoever was alone go at the end of the turn, unless the next grant is written over them.
local vacated, freed = false, false

local function forget_keys(grant)
    if SHARED[grant.rule] then
        redis.call('HDEL', HOLDERS, grant.owner)
        holders_end = nil -- it may have been the last, and the key is gone with its end
    else
        vacated = true
    end
end

local function end_grant(grant)
    local _, at = grant_of(grant.owner)
    table.remove(grants, at)
    seats, freed = nil, true
    forget_keys(grant)
end
