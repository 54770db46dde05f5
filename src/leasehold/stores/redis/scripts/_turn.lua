-- One turn of the ledger (core/turn.py says the same in Python): what is over ends, whoever fits is granted in order of
-- arrival, then comes the op, and then the same for what it has freed. SPEAKER is whoever sends it.

local KNOWN = {mutex = true, write = true, read = true, semaphore = true}
local TOO_LONG = '%d%d%d%d%d' -- no slot, and no number of permits: there are a thousand at most

local function read_grant(raw, shared)
    local fence, ttl, expires, renewals, since, closed, delay, rule, limit, slots, news, ticket, owner, meta = string.match(
        raw, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%l+) (%d+) ([%d,]+) (%S+) (%S+) (%S+) ?(.*)$')
    if not fence or not KNOWN[rule] or (SHARED[rule] or false) ~= shared or string.find(slots, TOO_LONG) then
        return nil -- somebody else wrote that
    end
    return {owner = owner, fence = fence, ttl = ttl, expires = tonumber(expires), renewals = renewals, since = since,
            closed = closed, delay = delay, rule = rule, limit = limit, slots = slots, news = news, ticket = ticket,
            meta = meta, order = tonumber(fence)}
end

look_at_clock()
local taken = redis.call('GET', OWNER)
local marked = taken and string.sub(taken, 1, 1) == ':' and taken
local alone = redis.call('GET', META) -- whoever held it alone, now or lately
alone = alone and read_grant(alone, false)
last = tonumber(redis.call('GET', FENCE) or 0) or 0

local PATIENCE, FORGOTTEN, MOST_AHEAD, MOST_ENDED, WATCHED = 3000, 30000, 1, 64, 30000
local FOR_EVER = 86400000
local SPEAKER = ARGV[1]

-- Mostly there is none of these.
local more = redis.call('EXISTS', ENDED, HOLDERS, LIMIT, WATCHERS) > 0
local watched = more and redis.call('EXISTS', WATCHERS) == 1
local door, doors = 0, {}

-- Let a key live at least until then.
local function stretch(key, until_ms)
    if redis.call('PTTL', key) < until_ms - ms then
        redis.call('PEXPIREAT', key, text(until_ms))
    end
end

-- A first write that adds nothing. A server without memory refuses the first write of a script if it adds something, and
-- no other; one that takes no writes at all refuses this one, before anything was said.
local insisted = false

local function insist()
    if not insisted then
        insisted = true
        redis.call('HDEL', WAITERS, '')
    end
end

-- ------------------------------------------------------------ places: what is held, and what is kept free

local seats -- how many there are of each rule, and which slots permits have; nil when somebody has left

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

local function limit_of(claim)
    if not stored then
        stored = more and tonumber(redis.call('GET', LIMIT) or 0) or 0 -- none, or one that nobody can read
    end
    return stored > 0 and stored or tonumber(claim.limit)
end

local function keep_limit(limit)
    stored = tonumber(limit)
    redis.call('SET', LIMIT, limit, 'PX', text(30 * DAY_MS - 1))
end

-- Does it want more than there will ever be? It must not keep others waiting.
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

-- The slots that a claim would fill, or nil (core/rules.py).
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

local function grant_to(claim, fence, slots)
    count_seats()
    local grant = seat(claim, fence, slots)
    count_seat(grant)
    if claim.rule == 'semaphore' and limit_of(claim) and stored > 0 then
        keep_limit(text(stored))
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

-- ------------------------------------------------------------ what has ended

local function close_until(until_ms)
    if until_ms > ms and until_ms > door then
        door = until_ms
        more = true
        insist()
        redis.call('HSET', ENDED, ':closed', text(door))
        stretch(ENDED, door)
    end
end

local function write_doors()
    local latest, written = 0, {}
    for _, one in ipairs(doors) do
        latest = math.max(latest, one.until_ms)
        written[#written + 1] = one.rule .. ':' .. one.slots .. ':' .. text(one.until_ms)
    end
    more = true
    insist()
    redis.call('HSET', ENDED, ':doors', text(latest) .. ' ' .. table.concat(written, ' '))
    stretch(ENDED, latest)
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
                one.until_ms = until_ms
                write_doors()
            end
            return
        end
    end
    doors[#doors + 1] = {rule = grant.rule, slots = grant.slots, until_ms = until_ms}
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

local function tombstone(owner)
    local raw = more and redis.call('HGET', ENDED, owner)
    if not raw then
        return nil
    end
    local until_ms, fence, outcome, detail = string.match(raw, '^(%d+) (%d+) (%S+) ?(.*)$')
    if not until_ms or tonumber(until_ms) <= ms then
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
        if tonumber(string.match(all[at + 1], '^%d+') or 0) <= ms then
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

-- ------------------------------------------------------------ the queue

local function patience(ttl)
    return math.min(tonumber(ttl), PATIENCE)
end

local function read_waiter(owner, raw)
    local beat, beat_ms, ttl, floor, since, delay, rule, permits, limit, address, news, meta = string.match(
        raw, '^(%-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%l+) (%d+) (%d+) (%S+) (%S+) ?(.*)$')
    if not beat or not KNOWN[rule] or string.find(permits, TOO_LONG) then -- nobody of ours
        return nil
    end
    return {owner = owner, beat = beat, beat_ms = tonumber(beat_ms), ttl = ttl, floor = floor, since = since,
            delay = delay, rule = rule, permits = permits, limit = limit, address = address, news = news, meta = meta}
end

-- PEXPIRE first, for the same reason as in insist().
local function write_waiter(one)
    redis.call('PEXPIRE', QUEUE, FORGOTTEN)
    redis.call('HSET', WAITERS, one.owner, one.beat .. ' ' .. text(one.beat_ms) .. ' ' .. one.ttl .. ' ' .. one.floor
        .. ' ' .. one.since .. ' ' .. one.delay .. ' ' .. one.rule .. ' ' .. one.permits .. ' ' .. one.limit .. ' '
        .. one.address .. ' ' .. one.news .. ' ' .. one.meta)
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

local STOP, LEFT = 'stop', 'left'

-- Call visit(waiter) for each in order, until it says STOP; it says LEFT of one who is not in the queue any more. The
-- first is read alone: mostly it is all there is to do.
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
            local said = LEFT
            if one and ms - one.beat_ms <= 10 * patience(one.ttl) then
                said = visit(one, raws[number])
            else
                leave(owner)
            end
            if said == STOP then
                return
            elseif said == LEFT then
                at = at - 1
            end
        end
        at, step = at + #owners, 32
    end
end

local function publish(address, event, owner, fence, beat, remaining, slots)
    local resource = string.sub(OWNER, 10, -8)
    return redis.pcall('PUBLISH', address, event .. ' ' .. fence .. ' ' .. beat .. ' ' .. remaining .. ' ' .. slots .. ' '
        .. owner .. ' ' .. resource)
end

-- Grant in order of arrival until somebody does not fit. `asking` is told by the reply; others by a push that names their
-- last beat, and who cannot be pushed takes what is free with its own beat. Nobody is granted while the door is closed.
local function hand_on(asking)
    freed = false
    if door > ms or (grants[1] and not SHARED[grants[1].rule]) then
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
        local fence = mint(one.floor)
        if one.owner ~= asking then
            if one.address == '-' then
                return STOP
            end
            insist() -- a server that refuses writes does so before anybody is told
            local heard = publish(one.address, 'granted', one.owner, text(fence), one.beat, one.ttl, slots)
            if type(heard) == 'table' then -- this user may not publish
                return STOP
            end
            if heard == 0 and one.owner ~= SPEAKER then -- passed over; its place is kept as a silent one's
                one.beat_ms = ms - patience(one.ttl) - 1
                write_waiter(one)
                return nil
            end
        end
        leave(one.owner)
        grant_to(one, fence, slots)
        return not SHARED[one.rule] and STOP or LEFT
    end)
end

local function ahead_of(owner)
    local count = 0
    walk(function(one)
        if one.owner == owner then
            return STOP
        end
        if live(one) then
            count = count + 1
        end
        return count == MOST_AHEAD and STOP or nil
    end)
    return count
end

-- Is there anybody whom a new claim would overtake?
local function line_is_empty()
    local empty = true
    walk(function(one)
        if live(one) and not impossible(one) then
            empty = false
            return STOP
        end
    end)
    return empty
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

-- Where this claim stands, granted or waiting.
local function standing(owner, one)
    local grant = grant_of(owner)
    if grant then
        return granted(grant, other_limit(grant))
    end
    return {QUEUED, ahead_of(owner), free_in(), holder(), one.address ~= '-' and 1 or 0, other_limit(one)}
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

-- ------------------------------------------------------------ the end of a turn

-- What watchers are told of: not of every renewal.
local function seen()
    local all = {}
    for _, one in ipairs(grants) do
        all[#all + 1] = one.owner .. ' ' .. one.fence .. ' ' .. one.rule .. ' ' .. one.meta
    end
    return table.concat(all, '\n')
end

-- Whoever wants to know of a change is told, once. Who is not there any more is forgotten.
local function tell_watchers()
    local all = redis.call('HGETALL', WATCHERS)
    for at = 1, #all, 2 do
        local beat_ms, address = string.match(all[at + 1], '^(%d+) (%S+)$')
        if not beat_ms or ms - beat_ms > WATCHED then
            redis.call('HDEL', WATCHERS, all[at])
        elseif address ~= '-' and all[at] ~= SPEAKER then
            insist()
            if publish(address, 'changed', all[at], text(last), '0', '0', '0') == 0 then
                redis.call('HDEL', WATCHERS, all[at])
            end
        end
    end
end

-- What the mark says of permits: as in _state.
local function rest_of_mark()
    local soonest, limit, taken, top = grants[1].expires, grants[1].limit, {}, 0
    for _, one in ipairs(grants) do
        soonest = math.min(soonest, one.expires)
        limit = one.limit == limit and limit or '0'
        for slot in string.gmatch(one.slots, '%d+') do
            taken[slot + 1] = '1'
            top = math.max(top, slot + 1)
        end
    end
    for place = 1, top do
        taken[place] = taken[place] or '0'
    end
    return ' ' .. text(soonest) .. ' ' .. limit .. ' ' .. table.concat(taken)
end

-- The keys of whoever was alone go, and the mark of those who share is right.
local function settle()
    local rule, latest = nil, 0
    for _, one in ipairs(grants) do
        if not SHARED[one.rule] then
            return
        end
        rule, latest = one.rule, math.max(latest, one.expires)
    end
    if vacated then
        redis.call('DEL', OWNER, META)
        marked = nil
    end
    if not rule then
        if marked then
            redis.call('DEL', OWNER)
        end
        return
    end
    local rest = rule == 'semaphore' and rest_of_mark() or ''
    if marked ~= ':' .. rule .. ' ' .. text(latest) .. rest then
        insist()
        mark(rule, latest, rest)
    end
end

local before

-- The op of a script, and what follows from it.
local function turn(op)
    local reply = op()
    if freed then
        hand_on()
    end
    settle()
    if watched and seen() ~= before then
        tell_watchers()
    end
    return reply
end

-- ------------------------------------------------------------ what is over ends

if more then
    local kept = redis.call('HMGET', ENDED, ':closed', ':doors')
    door = tonumber(kept[1] or 0) or 0
    for rule, slots, until_ms in string.gmatch(kept[2] or '', '(%l+):([%d,]+):(%d+)') do
        if tonumber(until_ms) > ms then
            doors[#doors + 1] = {rule = rule, slots = slots, until_ms = tonumber(until_ms)}
        end
    end
    local all = redis.call('HGETALL', HOLDERS)
    for at = 1, #all, 2 do
        local one = read_grant(all[at + 1], true)
        if one and one.owner == all[at] then
            grants[#grants + 1] = one
        else -- nobody of ours
            redis.call('HDEL', HOLDERS, all[at])
        end
    end
    table.sort(grants, function(one, other)
        return one.order < other.order
    end)
end
if door <= ms then
    door = 0
end
local gone -- whose key is there no more, or never was ours
if alone then
    table.insert(grants, 1, alone)
    gone = alone.owner ~= taken and alone or nil
end
before = watched and seen()
do
    local all = grants
    grants = {}
    for _, one in ipairs(all) do
        if one ~= gone and one.expires > ms then
            grants[#grants + 1] = one
        else
            forget_keys(one)
        end
    end
    for _, one in ipairs(all) do
        if one.expires <= ms then
            bury(one.owner, one.fence, 'expired', one.expires + keep(tonumber(one.ttl)))
            close(one, math.max(tonumber(one.closed), one.expires + one.delay))
        end
    end
end
if taken and not marked and not (alone and alone.owner == taken) then -- somebody who only knows SET NX PX
    local left = redis.call('PTTL', OWNER)
    left = left < 0 and FOR_EVER or left + 1
    table.insert(grants, 1, {owner = taken, fence = '0', ttl = string.format('%d', left), expires = ms + left,
                             renewals = '0', since = '0', closed = '0', delay = '0', rule = 'mutex', limit = '0',
                             slots = '0', news = '-', ticket = '-', meta = ''})
    if gone then
        redis.call('DEL', META)
    end
end
for _, one in ipairs(grants) do
    last = math.max(last, tonumber(one.fence))
end
hand_on()
