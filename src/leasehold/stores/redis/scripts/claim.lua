-- claim: request a place. Creates; a repeated one gets the reply of the first.
--
--   ARGV   owner floor ttl_ms beat enqueue(1|0) rule permits limit address holder_address delay_ms meta
--   reply  {GRANTED fence remaining_ms}, and unless the rule is mutex: slots limit rule
--          {QUEUED ahead free_in_ms holder pushable(1|0) limit}  {BUSY holder retry_in_ms limit}  {GONE outcome}
--          {REFUSED rule|floor}: there is no such rule, or the floor is out of bounds
--          {REFUSED permits permits limit}: there will never be so many
--          limit: that others go by, when it is another one; else 0

-- include _state

local enqueue, floor = ARGV[5], tonumber(ARGV[2])
local one = {owner = ARGV[1], floor = ARGV[2], ttl = ARGV[3], beat = ARGV[4], rule = ARGV[6], permits = ARGV[7],
             limit = ARGV[8], address = ARGV[9], holder_address = ARGV[10], delay = ARGV[11], meta = ARGV[12]}

-- Fast path: the resource is free and nobody waits.
local there = redis.call('EXISTS', META, QUEUE, ENDED, WATCHERS, OWNER, HOLDERS)
if there == 0 and (one.rule == 'mutex' or one.rule == 'write') then
    read_clock()
    if not wrong_floor(floor) then
        last = whole(redis.call('GET', FENCE)) or 0
        return granted(seat(one, mint(floor), '0'), 0)
    end
end

-- include _sharing

-- A shared grant beside those of the mark: latest, and of permits also soonest, limit, taken. Whether one of them has
-- expired does not matter to readers; an expired permit may have left its slots.
local function share(latest, soonest, limit, taken)
    local expires, slots, rest, other = ms + one.ttl, '0', '', 0
    if one.rule == 'semaphore' then
        local permits, own, stored = tonumber(one.permits), tonumber(one.limit), whole(redis.call('GET', LIMIT))
        local _, count = string.gsub(taken, '1', '1')
        if soonest <= ms or count + permits > (stored or own) or not (stored or limit == own) then
            return nil
        end
        slots, taken = take(permits, taken)
        rest = ' ' .. text(math.min(soonest, expires)) .. ' ' .. (limit == own and one.limit or '0') .. ' ' .. taken
        other = stored and stored ~= own and stored or 0
    end
    local grant = seat(one, mint(floor), slots)
    if one.rule == 'semaphore' then -- a limit that was stored is kept for as long as it is used
        redis.call('PEXPIRE', LIMIT, text(30 * DAY_MS - 1))
    end
    mark(one.rule, math.max(latest, expires), rest)
    return granted(grant, other)
end

-- Fast path: it is only held by others that share it.
if there == 0 and SHARED[one.rule] then
    read_clock()
    last = whole(redis.call('GET', FENCE)) or 0
    local reply = not wrong_floor(floor) and share(0, ms + one.ttl, tonumber(one.limit), '')
    if reply then
        return reply
    end
elseif there == 2 and SHARED[one.rule] and redis.call('EXISTS', OWNER, HOLDERS) == 2 then
    local taken = redis.call('GET', OWNER)
    local rule, latest, rest = string.match(#taken <= MOST_BYTES and taken or '', '^:(%l+) (%d+)(.*)$')
    last = rule == one.rule and whole(latest) and whole(redis.call('GET', FENCE))
    if last and not redis.call('HGET', HOLDERS, one.owner) then
        read_clock()
        local soonest, limit, taken = string.match(rest, '^ (%d+) (%d+) ([01]*)$')
        local reply = not wrong_floor(floor) and (rule == 'read' or whole(soonest) and whole(limit))
            and share(tonumber(latest), tonumber(soonest), tonumber(limit), taken)
        if reply then
            return reply
        end
    end
end

-- include _turn

return turn(function()
    if not KNOWN[one.rule] then
        return {REFUSED, 'rule'}
    end
    if wrong_floor(floor) then
        return {REFUSED, 'floor'}
    end
    if grant_of(one.owner) then
        return standing(one.owner)
    end
    local known = tombstone(one.owner)
    if known then -- it had its one grant, or its sender gave up before this arrived
        return {GONE, known.outcome}
    end
    if blocked then
        return blocked
    end
    local waiting = waiter(one.owner)
    if impossible(one) then
        freed = waiting and leave(one.owner)
        return too_many(one)
    end
    if waiting then
        if record_beat(waiting, one.beat, floor) then
            hand_on(one.owner)
        end
        return standing(one.owner, waiting)
    end
    local slots = door == 0 and fits(one)
    if slots and queue_is_empty() then
        return granted(grant_to(one, mint(floor), slots), other_limit(one))
    end
    if enqueue == '0' then -- wait=0 never stays in the queue
        return {BUSY, holder(), free_in(), other_limit(one)}
    end
    one.beat_ms, one.since = ms, wall_text
    redis.call('RPUSH', QUEUE, one.owner)
    write_waiter(one)
    return standing(one.owner, one)
end)
