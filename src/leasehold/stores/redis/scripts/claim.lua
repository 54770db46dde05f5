-- claim: ask for a place. Creates; a repeated one is told what the first one got.
--
--   ARGV   owner floor ttl_ms beat enqueue(1|0) rule permits limit address news delay_ms meta
--   reply  {GRANTED fence remaining_ms}, and unless the rule is mutex: slots limit rule
--          {QUEUED ahead free_in_ms holder pushable(1|0) limit}  {BUSY holder retry_in_ms limit}  {GONE outcome}
--          {REFUSED rule|floor}: there is no such rule, or the floor is out of bounds
--          {REFUSED permits permits limit}: there will never be so many
--          limit: that others go by, when it is another one; else 0

-- include _state

local enqueue, floor = ARGV[5], tonumber(ARGV[2])
local one = {owner = ARGV[1], floor = ARGV[2], ttl = ARGV[3], beat = ARGV[4], rule = ARGV[6], permits = ARGV[7],
             limit = ARGV[8], address = ARGV[9], news = ARGV[10], delay = ARGV[11], meta = ARGV[12]}

-- Mostly nobody is there.
if KNOWN[one.rule] and redis.call('EXISTS', OWNER, META, QUEUE, ENDED, HOLDERS, LIMIT, WATCHERS) == 0 then
    local slots = '0'
    if one.rule == 'semaphore' then
        local permits, limit = tonumber(one.permits), tonumber(one.limit)
        for slot = 1, permits - 1 do
            slots = slots .. ',' .. slot
        end
        slots = permits <= limit and slots
    end
    look_at_clock()
    if slots and not wrong_floor(floor) then
        last = tonumber(redis.call('GET', FENCE) or 0) or 0
        local grant = seat(one, mint(floor), slots)
        if SHARED[one.rule] then
            mark(one.rule, grant.expires)
        end
        return granted(grant, 0)
    end
end

-- Or only readers, and then one more: whose time is over is of no matter to it.
if one.rule == 'read' and redis.call('EXISTS', META, QUEUE, ENDED, WATCHERS) == 0 then
    local marked = string.match(redis.call('GET', OWNER) or '', '^:read (%d+)$')
    last = marked and tonumber(redis.call('GET', FENCE) or '')
    if last and not redis.call('HGET', HOLDERS, one.owner) then
        look_at_clock()
        if not wrong_floor(floor) then
            local grant = seat(one, mint(floor), '0')
            if grant.expires > tonumber(marked) then
                mark('read', grant.expires)
            end
            return granted(grant, 0)
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
    local waiting = waiter(one.owner)
    if impossible(one) then
        freed = waiting and leave(one.owner)
        return too_many(one)
    end
    if waiting then
        if hear(waiting, one.beat, floor) then
            hand_on(one.owner)
        end
        return standing(one.owner, waiting)
    end
    local slots = door == 0 and fits(one)
    if slots and line_is_empty() then
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
