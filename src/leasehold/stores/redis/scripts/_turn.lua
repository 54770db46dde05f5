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

-- include _places
-- include _ended
-- include _queue

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
