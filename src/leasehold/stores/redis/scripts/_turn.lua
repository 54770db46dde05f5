-- One turn of the ledger (_core/turn.py is the same in Python): what is over ends, waiters that fit are granted in
-- order of arrival, then comes the op, and then the same for what it has freed. SENDER is the owner that sends it.

-- include _records

local MOST_STRANGE, MOST_HOLDERS, MOST_WATCHERS = 20, 10000, 5000

-- What cannot be read of this resource, as _view shows it: another program wrote it, or it is damaged. `blocked`: it
-- may be a grant, or keep a place free; no claim is granted then.
local strange, blocked = {}, nil

local function unreadable(key, why, blocks)
    if #strange < MOST_STRANGE then
        strange[#strange + 1] = {key, why, blocks and 1 or 0}
    end
    if blocks and not blocked then
        blocked = {err = 'UNREADABLE ' .. string.match(key, '%l+$') .. ' ' .. why}
    end
end

-- No end is further ahead than the length that it was set with (_core/turn.py): else a clock that was set back would
-- let it last longer by the step.
local bounded = false

local function bound(one)
    local ahead = one.expires - one.ttl - ms
    if ahead > 0 then
        one.expires, one.closed = ms + one.ttl, text(math.max(one.closed - ahead, 0))
        bounded = true
    end
    return one
end

local PATIENCE, FORGOTTEN, MOST_AHEAD, WATCHED = 3000, 30000, 1, 30000
local ENDED_APART, ENDED_SWEPT, MANY_ENDED = 64, 256, 4096
local SENDER = ARGV[1]

read_clock()
local taken = redis.call('GET', OWNER)
local marked = taken and string.sub(taken, 1, 1) == ':' and taken
local kept = redis.call('HMGET', MORE, ':closed', ':doors', ':grant')
special = kept[3] or nil
last = redis.call('GET', FENCE)
last = last and (whole(last) or unreadable(FENCE, 'is no number')) or 0

-- Mostly there is none of these.
local shared = redis.call('EXISTS', HOLDERS, WATCHERS) > 0
local watched = shared and redis.call('HLEN', WATCHERS) or 0 -- before anything is written: it may be no hash
if watched > MOST_WATCHERS then
    unreadable(WATCHERS, 'has too many fields')
end
watched = watched > 0 and watched <= MOST_WATCHERS -- with more of them, watchers poll
local door, doors = 0, {}

-- A first write that adds nothing. A server without memory refuses the first write of a script if it adds something,
-- and no other; one that takes no writes at all refuses this one, before a push is sent.
local insisted = false

local function probe_write()
    if not insisted then
        insisted = true
        redis.call('HDEL', MORE, '')
    end
end

-- include _places
-- include _ended
-- include _queue

-- ------------------------------------------------------------ the end of a turn

-- What watchers get a push for: not every renewal.
local function seen()
    local all = {}
    for _, one in ipairs(grants) do
        all[#all + 1] = one.owner .. ' ' .. one.fence .. ' ' .. one.rule .. ' ' .. one.meta
    end
    return table.concat(all, '\n')
end

local function read_watcher(raw)
    return string.match(#raw <= MOST_BYTES and raw or '', '^(%d+) (%S+)$')
end

-- Watchers get one push for a change. Those that no longer receive are deleted.
local function tell_watchers()
    local all = redis.call('HGETALL', WATCHERS)
    for at = 1, #all, 2 do
        local beat_ms, address = read_watcher(all[at + 1])
        if not beat_ms or ms - beat_ms > WATCHED then
            redis.call('HDEL', WATCHERS, all[at])
        elseif address ~= '-' and all[at] ~= SENDER then
            probe_write()
            if publish(address, 'changed', all[at], text(last), '0', '0', '0') == 0 then
                redis.call('HDEL', WATCHERS, all[at])
            end
        end
    end
end

-- Watchers with a time later than now were written before the clock was set back.
local function bound_watchers()
    probe_write()
    local all = redis.call('HGETALL', WATCHERS)
    for at = 1, #all, 2 do
        local beat_ms, address = read_watcher(all[at + 1])
        if beat_ms and tonumber(beat_ms) > ms then
            redis.call('HSET', WATCHERS, all[at], text(ms) .. ' ' .. address)
        end
    end
    redis.call('PEXPIRE', WATCHERS, WATCHED)
end

-- What is left of a grant that is over.
local function forget_special()
    if special then
        special = nil
        redis.call('HDEL', MORE, ':grant')
    end
end

-- A release has more to do from now on than to delete the owner's key.
local function raise_flag()
    local one = grants[1]
    if one and one.flag == '0' then
        one.flag = '1'
        write_alone(one)
    end
end

-- The part of the mark for permits: as in _state.
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

-- Delete the key of a holder that was alone, and write the mark of shared grants.
local function settle()
    local rule, latest = nil, 0
    for _, one in ipairs(grants) do
        if not SHARED[one.rule] then
            return
        end
        rule, latest = one.rule, math.max(latest, one.expires)
    end
    if vacated then
        redis.call('DEL', OWNER)
        marked = nil
    end
    forget_special()
    if not rule then
        if marked and not blocked then
            redis.call('DEL', OWNER)
        end
        return
    end
    local rest = rule == 'semaphore' and rest_of_mark() or ''
    if blocked then
        rule, rest = 'unreadable', '' -- no claim is granted by this mark without a turn
    end
    if marked ~= ':' .. rule .. ' ' .. text(latest) .. rest then
        probe_write()
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

local alone = taken and not marked and parse_alone(taken)
if alone then
    alone.expires = ms + time_left()
    bound(alone)
end
local gone -- a grant that was remembered, and whose key is missing or has another content
if special then
    gone = parse_special(special)
    if not gone then
        special = nil -- it is not overwritten
        unreadable(MORE, 'has a grant that is none', true)
    else
        bound(gone)
        if alone and alone.fence == gone.fence then
            alone.closed, alone.delay, alone.repeated, alone.ticket = gone.closed, gone.delay, gone.repeated, gone.ticket
            gone = nil
        end
    end
end
if kept[1] or kept[2] then
    read_doors(kept[1], kept[2])
end
if shared then
    if watched and redis.call('PTTL', WATCHERS) > WATCHED then -- the clock was set back
        bound_watchers()
    end
    local all = {}
    if redis.call('HLEN', HOLDERS) > MOST_HOLDERS then
        unreadable(HOLDERS, 'has too many fields', true)
    else
        all = redis.call('HGETALL', HOLDERS)
    end
    for at = 1, #all, 2 do
        local one = parse_shared(all[at + 1])
        if one and one.owner == all[at] then
            grants[#grants + 1] = bound(one)
        else -- no owner of ours, or one that still works
            unreadable(HOLDERS, 'has a field that is no grant', true)
        end
    end
    table.sort(grants, function(one, other)
        return one.order < other.order
    end)
end
if alone then
    table.insert(grants, 1, alone)
end
do
    local all, over = grants, 0
    grants = {}
    gathering = true
    for _, one in ipairs(all) do
        if one.expires > ms then
            grants[#grants + 1] = one
        else -- a shared one: the key of a grant that is alone would not be there
            forget_keys(one)
            over = over + bury_expired(one)
        end
    end
    if gone then
        if gone.expires <= ms then
            over = over + bury_expired(gone)
        else -- deleted, or over before the clock was set back: no clean end, so its door stays closed
            close(gone, math.max(tonumber(gone.closed), ms + gone.delay))
        end
        forget_special()
    end
    gathering = false
    if gathered then
        write_doors()
    end
    if over > 0 then
        sweep_more(over)
    end
end
if bounded then
    probe_write()
    holders_end = 0 -- its own end is as far ahead
    for _, one in ipairs(grants) do
        write_grant(one)
    end
end
if taken and not marked and not alone then
    table.insert(grants, 1, outsider(taken))
end
for _, one in ipairs(grants) do
    last = math.max(last, tonumber(one.fence))
end
before = watched and seen()
hand_on()
