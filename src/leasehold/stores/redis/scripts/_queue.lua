-- The queue: the waiters, and how they are granted what is free.

-- PEXPIRE first, for the same reason as in probe_write().
local function write_waiter(one)
    local until_ms = one.beat_ms + 10 * patience(one.ttl) + 1
    local raw = text(until_ms) .. ' waiting ' .. one.repeated .. ' ' .. one.beat .. ' ' .. one.ttl .. ' ' .. one.floor .. ' ' .. one.since .. ' '
        .. one.delay .. ' ' .. one.rule .. ' ' .. one.permits .. ' ' .. one.limit .. ' ' .. one.address .. ' '
        .. one.holder_address .. ' ' .. one.meta
    redis.call('PEXPIRE', QUEUE, FORGOTTEN)
    write_field(one.owner, raw, until_ms)
    return raw
end

-- A waiter as it is in the hash. A beat that is later than now came before the clock was set back: it counts as now.
local function found(owner, raw)
    local one = parse_waiter(owner, raw)
    if one and one.beat_ms > ms then
        one.beat_ms = ms
        raw = write_waiter(one)
    end
    return one, raw
end

-- False: it did not wait.
local function leave(owner)
    if redis.call('LREM', QUEUE, 1, owner) == 0 then
        return false
    end
    if not tombstone(owner) then
        delete_field(owner)
    end
    return true
end

-- The waiter, unless it was silent for so long that its place is no longer kept.
local function waiter(owner)
    local raw = field(owner)
    local one = raw and found(owner, raw)
    if one and ms - one.beat_ms > 10 * patience(one.ttl) then
        leave(owner)
        return nil
    end
    return one or nil
end

local function live(one)
    return ms - one.beat_ms <= patience(one.ttl)
end

local STOP, LEFT, MOST_STEPS, MOST_DROPPED = 'stop', 'left', 512, 1000

-- Call visit(waiter) for each in order, until it returns STOP; it returns LEFT for one that is no longer in the queue.
-- The first is read alone, which is mostly enough. True: there are more, and the server has other work.
local function walk(visit)
    local at, step = 0, 1
    local dropped = 0
    for _ = 0, MOST_STEPS do
        local owners = redis.call('LRANGE', QUEUE, at, at + step - 1)
        if #owners == 0 then
            return
        end
        local raws = redis.call('HMGET', MORE, unpack(owners))
        for number, owner in ipairs(owners) do
            local one, raw
            fields[owner] = raws[number]
            if raws[number] then
                one, raw = found(owner, raws[number])
            end
            local verdict = LEFT
            if one and ms - one.beat_ms <= 10 * patience(one.ttl) then
                verdict = visit(one, raw)
            else
                leave(owner)
                dropped = dropped + 1
            end
            if verdict == STOP then
                return
            elseif dropped == MOST_DROPPED then
                return true
            elseif verdict == LEFT then
                at = at - 1
            end
        end
        at, step = at + #owners, 32
    end
    return true
end

-- include _publish

-- To a channel of ours alone: an address is read from a key, which another program may have written.
local function publish(address, event, owner, fence, beat, remaining, slots)
    if string.sub(address, 1, 13) ~= 'lock:v1:push:' then
        return 0
    end
    local resource = string.sub(OWNER, 10, -8)
    return tell(address, event .. ' ' .. fence .. ' ' .. beat .. ' ' .. remaining .. ' ' .. slots .. ' '
        .. owner .. ' ' .. resource)
end

-- Grant in order of arrival until a claim does not fit. `sender` gets its grant in the reply, others in a push that
-- names their last beat; a waiter that cannot be pushed takes what is free with its own beat. No grant while the door
-- is closed.
local function hand_on(sender)
    freed = false
    if blocked or door > ms or (grants[1] and not SHARED[grants[1].rule]) then
        return
    end
    walk(function(one)
        if not live(one) or impossible(one) then
            return nil
        end
        local slots = fits(one)
        if not slots then
            return STOP
        end
        local fence, top = mint(one.floor, one.owner ~= sender and not SHARED[one.rule] and tonumber(one.limit))
        local brings = top > fence and '+' .. text(top - fence) or ''
        if one.owner ~= sender then
            if one.address == '-' then
                return STOP
            end
            probe_write() -- a server that refuses writes does so before a push is sent
            local receivers = publish(one.address, 'granted' .. brings, one.owner, text(fence), one.beat, one.ttl, slots)
            if type(receivers) == 'table' then -- this user may not publish
                return STOP
            end
            if receivers == 0 and one.owner ~= SENDER then -- skipped: it keeps its place as if it had been silent
                one.beat_ms = ms - patience(one.ttl) - 1
                write_waiter(one)
                return nil
            end
        end
        leave(one.owner)
        grant_to(one, fence, slots, top)
        return not SHARED[one.rule] and STOP or LEFT
    end)
end

local function ahead_of(owner)
    local count, there = 0, false
    walk(function(one)
        there = one.owner == owner
        if there then
            return STOP
        end
        if live(one) then
            count = count + 1
        end
        return count == MOST_AHEAD and STOP or nil
    end)
    return count, there or count == MOST_AHEAD
end

-- True when there is no waiter that a new claim would overtake.
local function queue_is_empty()
    local empty = true
    local more_of_them = walk(function(one)
        if live(one) and not impossible(one) then
            empty = false
            return STOP
        end
    end)
    return empty and not more_of_them
end

local function holder()
    return grants[1] and grants[1].owner or ''
end

local function free_in()
    local first
    for _, one in ipairs(grants) do
        local ends = math.max(one.expires, tonumber(one.closed))
        first = first and math.min(first, ends) or ends
    end
    for _, one in ipairs(doors) do
        first = first and math.min(first, one.until_ms) or one.until_ms
    end
    return math.max(first or 0, door, ms) - ms
end

-- A claim has to wait: a holder that asked for it learns of it, once.
local function tell_holder()
    local one = grants[1]
    if one and one.tell then
        probe_write()
        publish(one.holder_address, 'wanted', one.owner, one.fence, '0', string.format('%d', one.expires - ms), one.slots)
        one.tell = false
        write_grant(one)
    end
end

-- The reply for this claim, granted or waiting.
local function standing(owner, one)
    local grant = grant_of(owner)
    if grant and grant.fence == '0' then -- another program has overwritten the rest of it
        return {err = 'UNREADABLE owner is no grant'}
    end
    if grant then
        return granted(grant, other_limit(grant))
    end
    local ahead, there = ahead_of(owner)
    if not there then -- the list is gone, and a clock that was set back has brought back the hash
        delete_field(owner)
        return {GONE, 'unknown'}
    end
    tell_holder()
    return {QUEUED, ahead, free_in(), holder(), one.address ~= '-' and 1 or 0, other_limit(one)}
end

-- A beat shows that the waiter is alive. One that was overtaken by a later beat shows nothing.
local function record_beat(one, beat, floor)
    if tonumber(beat) <= tonumber(one.beat) then
        return false
    end
    one.beat, one.beat_ms = beat, ms
    if floor > tonumber(one.floor) then
        one.floor = text(floor)
    end
    write_waiter(one)
    return true
end
