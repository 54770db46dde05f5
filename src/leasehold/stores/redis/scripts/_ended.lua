-- What has ended: closed doors, tombstones, and the keys of holders that are gone (_core/turn.py).

local strange_closed, strange_doors = false, false -- true: that field is unreadable, and is not overwritten

local function close_until(until_ms)
    if until_ms > ms and until_ms > door then
        door = until_ms
        if not strange_closed then
            probe_write()
            redis.call('HSET', MORE, ':closed', text(door) .. ' ' .. text(door - ms))
            stretch(MORE, door)
        end
    end
end

local places = {} -- the doors by rule and slots: a thousand may share, and all end at once
local gathering, gathered = false, false -- while many end at once, the result of all of them is written once

local function add_door(rule, slots, until_ms, length)
    local one = {rule = rule, slots = slots, until_ms = until_ms, length = length}
    doors[#doors + 1] = one
    places[rule .. ':' .. slots] = places[rule .. ':' .. slots] or one
end

local function write_doors()
    local latest, written = 0, {}
    for _, one in ipairs(doors) do
        latest = math.max(latest, one.until_ms)
        written[#written + 1] = one.rule .. ':' .. one.slots .. ':' .. text(one.until_ms) .. ':' .. text(one.length)
    end
    probe_write()
    if latest == 0 then
        redis.call('HDEL', MORE, ':doors')
        return
    end
    local all = text(latest) .. ' ' .. table.concat(written, ' ')
    if #all > MOST_DOORS_BYTES then -- too long to be read again: no place is given until the last of them is free
        doors, places = {}, {}
        redis.call('HDEL', MORE, ':doors')
        close_until(latest)
        return
    end
    redis.call('HSET', MORE, ':doors', all)
    stretch(MORE, latest)
end

-- When a door opens: never further ahead than its length, for the clock may have been set back. 0: it is over.
local function opens(until_ms, length)
    until_ms = math.min(until_ms, ms + length)
    return until_ms > ms and until_ms or 0
end

local function read_closed(written)
    local until_ms, length = parse_closed(written)
    if not until_ms then
        strange_closed = true
        unreadable(MORE, 'has a time in :closed that is none', true)
        return
    end
    local left = opens(until_ms, length)
    if left == 0 then
        redis.call('HDEL', MORE, ':closed')
    elseif left < until_ms then
        close_until(left)
    else
        door = left
    end
end

-- What is over is deleted, so that it does not come back when the clock is set back.
local function read_doors(closed, written)
    if closed then
        read_closed(closed)
    end
    local found, strange = parse_doors(written or '')
    if strange then
        strange_doors = true
        unreadable(MORE, 'has a place in :doors that is none', true)
    end
    local same = true
    for _, one in ipairs(found) do
        local left = opens(one.until_ms, one.length)
        same = same and left == one.until_ms
        if left > 0 then
            add_door(one.rule, one.slots, left, one.length)
        end
    end
    if not same and not strange then
        write_doors()
    end
end

-- What this grant had is given to no one until then: all of it, if it held alone; else its own slots.
local function close(grant, until_ms)
    if until_ms <= ms then
        return
    end
    if not SHARED[grant.rule] or strange_doors then
        close_until(until_ms)
        return
    end
    seats = nil
    local one = places[grant.rule .. ':' .. grant.slots]
    if not one then
        add_door(grant.rule, grant.slots, until_ms, until_ms - ms)
    elseif until_ms > one.until_ms then
        one.until_ms, one.length = until_ms, until_ms - ms
    else
        return
    end
    if gathering then
        gathered = true
    else
        write_doors()
    end
end

-- For how long some place is given to no one.
local function closed_ms()
    local latest = door
    for _, one in ipairs(doors) do
        latest = math.max(latest, one.until_ms)
    end
    return math.max(latest - ms, 0)
end

-- What `more` has of an owner, or false. Read once in a turn.
local fields = {}

local function field(owner)
    if fields[owner] == nil then
        fields[owner] = redis.call('HGET', MORE, owner)
    end
    return fields[owner]
end

local function write_field(owner, raw, until_ms)
    fields[owner] = raw
    redis.call('HSET', MORE, owner, raw)
    stretch(MORE, until_ms)
end

local function delete_field(owner)
    fields[owner] = false
    redis.call('HDEL', MORE, owner)
end

local function tombstone(owner, known)
    local raw = known or field(owner)
    if not raw or #raw > MOST_BYTES then
        return nil
    end
    local until_ms, outcome, fence, detail = string.match(raw, '^(%d+) (%l+) (%d+) ?(.*)$')
    if not until_ms or outcome == 'waiting' or not whole(fence) or (whole(until_ms) or 0) <= ms then
        return nil
    end
    return {until_ms = tonumber(until_ms), fence = fence, outcome = outcome, detail = detail}
end

-- What is over is deleted now and then, some at a time: nothing else does it while others are added. The clock decides
-- where to begin, so that each gets its turn. For a user who may not use HSCAN they end with the key.
local function sweep_more(added)
    if redis.call('HLEN', MORE) % ENDED_APART >= added then
        return
    end
    local page = redis.pcall('HSCAN', MORE, wall_text, 'COUNT', ENDED_SWEPT)
    local all = page[2] or {}
    for at = 1, #all, 2 do
        local start = string.sub(all[at + 1], 1, 34)
        local until_ms, waits = string.match(start, '^%d+'), string.find(start, '^%d+ waiting ')
        -- What keeps something closed is deleted when it is read, and stays where it is if it cannot be read.
        local swept = string.sub(all[at], 1, 1) ~= ':' or all[at] == ':limit'
        if swept and not (until_ms and tonumber(until_ms) > ms) then
            if waits then
                redis.call('LREM', QUEUE, 1, all[at])
            end
            delete_field(all[at])
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
    probe_write()
    write_field(owner, text(until_ms) .. ' ' .. known.outcome .. ' ' .. known.fence .. ' ' .. known.detail, until_ms)
    if not gathering then
        sweep_more(1)
    end
end

local function why_not(owner, fence)
    local known = tombstone(owner)
    if known then
        return known.outcome
    end
    return (#grants > 0 or last > tonumber(fence)) and 'taken' or 'deleted'
end

-- The key of a holder that was alone is deleted at the end of the turn, unless the next grant overwrites it.
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

-- A grant that has expired: it is remembered if it has to be, and its door stays closed. How many tombstones are new.
local function bury_expired(one)
    close(one, math.max(tonumber(one.closed), one.expires + one.delay))
    if not outlives_its_end(one) then
        return 0
    end
    bury(one.owner, one.fence, 'expired', one.expires + keep(tonumber(one.ttl)))
    return 1
end
