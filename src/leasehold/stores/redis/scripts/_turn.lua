-- One turn of the ledger (core/turn.py says the same in Python): what is over ends, the next live waiter is granted,
-- and then comes the op. SPEAKER is whoever sends it.

local function read_grant(raw)
    local fence, ttl, expires, renewals, since, closed, delay, news, ticket, owner, meta =
        string.match(raw, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) ?(.*)$')
    if not fence then -- somebody else wrote that: whoever holds is then known by its key alone
        return nil
    end
    return {owner = owner, fence = fence, ttl = ttl, expires = tonumber(expires), renewals = renewals, since = since,
            closed = closed, delay = delay, news = news, ticket = ticket, meta = meta}
end

look_at_clock()
holder = redis.call('GET', OWNER)
do
    local raw = redis.call('GET', META)
    grant = raw and read_grant(raw)
end
last = tonumber(redis.call('GET', FENCE) or 0)

local PATIENCE, FORGOTTEN, MOST_AHEAD, MOST_ENDED = 3000, 30000, 1, 64
local FOR_EVER = 86400000
local SPEAKER = ARGV[1]

local any_ended = redis.call('EXISTS', ENDED) == 1
local door = any_ended and tonumber(redis.call('HGET', ENDED, ':closed') or 0) or 0
if door <= ms then
    door = 0
end

-- Let a key live at least until then.
local function stretch(key, until_ms)
    if redis.call('PTTL', key) < until_ms - ms then
        redis.call('PEXPIREAT', key, text(until_ms))
    end
end

-- A first write that adds nothing. A server without memory refuses the first write of a script if it adds something, and
-- no other; one that takes no writes at all refuses this one, before anything was said.
local function insist()
    redis.call('HDEL', WAITERS, '')
end

local function close_until(until_ms)
    if until_ms > ms and until_ms > door then
        door = until_ms
        any_ended = true
        insist()
        redis.call('HSET', ENDED, ':closed', text(door))
        stretch(ENDED, door)
    end
end

local function tombstone(owner)
    local raw = any_ended and redis.call('HGET', ENDED, owner)
    if not raw then
        return nil
    end
    local until_ms, fence, outcome, detail = string.match(raw, '^(%d+) (%d+) (%S+) ?(.*)$')
    if tonumber(until_ms) <= ms then
        return nil
    end
    return {until_ms = tonumber(until_ms), fence = fence, outcome = outcome, detail = detail}
end

-- Those past their time are thrown away now and then: nobody else does it while others are added.
local function sweep_ended()
    if redis.call('HLEN', ENDED) % MOST_ENDED ~= 0 then
        return
    end
    local all = redis.call('HGETALL', ENDED)
    for at = 1, #all, 2 do
        if tonumber(string.match(all[at + 1], '^%d+')) <= ms then
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
    any_ended = true
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
    return (holder or last > tonumber(fence)) and 'taken' or 'deleted'
end

-- The keys go at the end of the turn, unless the next grant is written over them.
local vacated = false

local function end_grant()
    holder, grant, vacated = false, nil, true
end

local function clear_up()
    if vacated and not holder then
        redis.call('DEL', OWNER, META)
    end
end

-- ------------------------------------------------------------ the queue

local function patience(ttl)
    return math.min(tonumber(ttl), PATIENCE)
end

local function read_waiter(owner, raw)
    local beat, beat_ms, ttl, floor, since, delay, address, news, meta =
        string.match(raw, '^(%-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) ?(.*)$')
    if not beat then -- nobody of ours
        return nil
    end
    return {owner = owner, beat = beat, beat_ms = tonumber(beat_ms), ttl = ttl, floor = floor, since = since,
            delay = delay, address = address, news = news, meta = meta}
end

-- PEXPIRE first, for the same reason as in insist().
local function write_waiter(one)
    redis.call('PEXPIRE', QUEUE, FORGOTTEN)
    redis.call('HSET', WAITERS, one.owner, one.beat .. ' ' .. text(one.beat_ms) .. ' ' .. one.ttl .. ' ' .. one.floor
        .. ' ' .. one.since .. ' ' .. one.delay .. ' ' .. one.address .. ' ' .. one.news .. ' ' .. one.meta)
    redis.call('PEXPIRE', WAITERS, FORGOTTEN)
end

local function leave(owner)
    redis.call('HDEL', WAITERS, owner)
    return redis.call('LREM', QUEUE, 1, owner) > 0
end

-- The waiter, unless it was silent for so long that its place is no longer kept.
local function waiter(owner)
    local raw = redis.call('HGET', WAITERS, owner)
    local one = raw and read_waiter(owner, raw)
    if one and ms - one.beat_ms > 10 * patience(one.ttl) then
        leave(owner)
        return nil
    end
    return one or nil
end

local function live(one)
    return math.abs(ms - one.beat_ms) <= patience(one.ttl)
end

-- Call visit(waiter) for each in order, until it returns true. The first is read alone: mostly it is all there is to do.
local function walk(visit)
    local at, step = 0, 1
    while true do
        local owners = redis.call('LRANGE', QUEUE, at, at + step - 1)
        if #owners == 0 then
            return
        end
        local raws = redis.call('HMGET', WAITERS, unpack(owners))
        for number, owner in ipairs(owners) do
            local one = raws[number] and read_waiter(owner, raws[number])
            if not one or ms - one.beat_ms > 10 * patience(one.ttl) then
                leave(owner)
                at = at - 1
            elseif visit(one, raws[number]) then
                return
            end
        end
        at, step = at + #owners, 32
    end
end

local function publish(address, event, owner, fence, beat, remaining)
    local resource = string.sub(OWNER, 10, -8)
    return redis.pcall('PUBLISH', address, event .. ' ' .. fence .. ' ' .. beat .. ' ' .. remaining .. ' ' .. owner
        .. ' ' .. resource)
end

-- Grant to the first live waiter. `asking` is told by the reply; others by a push that names their last beat, and who
-- cannot be pushed takes the free resource with its own beat. Nobody is granted while the door is closed.
local function hand_on(asking)
    if holder or door > ms then
        return
    end
    walk(function(one)
        if not live(one) then
            return false
        end
        local fence = mint(one.floor)
        if one.owner ~= asking then
            if one.address == '-' then
                return true
            end
            insist() -- a server that refuses writes does so before anybody is told
            local heard = publish(one.address, 'granted', one.owner, text(fence), one.beat, one.ttl)
            if type(heard) == 'table' then -- this user may not publish
                return true
            end
            if heard == 0 and one.owner ~= SPEAKER then -- passed over; its place is kept as a silent one's
                one.beat_ms = ms - patience(one.ttl) - 1
                write_waiter(one)
                return false
            end
        end
        leave(one.owner)
        seat(one.owner, fence, one.ttl, one.delay, one.news, one.meta)
        return true
    end)
end

local function ahead_of(owner)
    local count = 0
    walk(function(one)
        if one.owner == owner then
            return true
        end
        if live(one) then
            count = count + 1
        end
        return count == MOST_AHEAD
    end)
    return count
end

local function free_in()
    local ends = grant and math.max(grant.expires, tonumber(grant.closed)) or 0
    return math.max(ends, door, ms) - ms
end

-- Where this claim stands, granted or waiting.
local function standing(owner, one)
    if holder == owner then
        return {GRANTED, tonumber(grant.fence), grant.expires - ms}
    end
    return {QUEUED, ahead_of(owner), free_in(), holder or '', one.address ~= '-' and 1 or 0}
end

-- A sign of life. One that was overtaken by a later beat says nothing about now.
local function hear(one, beat, floor)
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

-- ------------------------------------------------------------ what is over ends

if grant and (grant.owner ~= holder or grant.expires <= ms) then
    local over = grant
    if holder and grant.owner ~= holder then -- somebody replaced it by hand
        redis.call('DEL', META)
        grant = nil
    else
        end_grant()
    end
    if over.expires <= ms then
        bury(over.owner, over.fence, 'expired', over.expires + keep(tonumber(over.ttl)))
        close_until(math.max(tonumber(over.closed), over.expires + over.delay))
    end
end
if holder and not grant then -- somebody who only knows SET NX PX
    local left = redis.call('PTTL', OWNER)
    left = left < 0 and FOR_EVER or left + 1
    grant = {owner = holder, fence = '0', ttl = string.format('%d', left), expires = ms + left, renewals = '0',
             since = '0', closed = '0', delay = '0', news = '-', ticket = '-', meta = ''}
end
if grant then
    last = math.max(last, tonumber(grant.fence))
end
hand_on()
clear_up()
