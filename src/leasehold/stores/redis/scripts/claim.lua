-- claim: request a place. Creates; a repeated one gets the reply of the first.
--
--   ARGV   owner floor ttl_ms record options meta
--          record: the part of the owner's key from its number to its rule, for a grant that is plain
--          options: rule beat delay_ms enqueue(1|0) permits limit address
--   reply  {GRANTED fence remaining_ms}, and unless the rule is mutex: slots limit rule
--          {QUEUED ahead free_in_ms holder pushable(1|0) limit}  {BUSY holder retry_in_ms limit}  {GONE outcome}
--          {REFUSED rule|floor}: there is no such rule, or the floor is out of bounds
--          {REFUSED permits permits limit}: there will never be so many
--          limit: that others go by, when it is another one; else 0

local call, options, floor = redis.call, ARGV[5], tonumber(ARGV[2])
local kind = string.sub(options, 1, 10)
local plain = kind == 'mutex 1 0 ' or kind == 'write 1 0 ' -- the only claim of an owner that holds alone, if at all
local there = call('EXISTS', KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]) -- all but the fence; the keys are those of _state
if (there == 1 or there == 3 and not plain) and call('EXISTS', KEYS[4]) == 1 then
    local kept = call('HMGET', KEYS[4], ':closed', ':doors', ':grant', ARGV[1])
    if not (kept[1] or kept[2] or kept[3] or kept[4]) then -- it has nothing that concerns this claim
        there = there - 1
    end
end

-- Fast path: the resource is free and nobody waits. It comes before any function is defined.
if plain and there == 0 then
    local time = call('TIME')
    local wall = time[1] * 1000000 + time[2]
    if floor >= 0 and floor <= 9007112854740992 and floor <= wall + 315619200000000 then
        local fence, since = wall, time[1] .. string.sub('00000' .. time[2], -6)
        local written = since
        local before = call('SET', KEYS[2], written, 'PX', '86399999', 'GET')
        before = before and #before <= 16 and string.find(before, '^%d+$') and tonumber(before) or 0
        if before >= wall or floor >= wall then -- the clock is behind: it was set back, or another server's was ahead
            fence = math.max(before < 9007199254740992 and before or 0, floor, wall - 1) + 1
            written = string.format('%.0f', fence)
            call('SET', KEYS[2], written, 'PX',
                string.format('%.0f', math.ceil(fence / 1000) + 86399999 - math.floor(wall / 1000)))
        end
        call('SET', KEYS[1], written .. ' ' .. ARGV[1] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. since .. ' ' .. ARGV[6],
            'PX', string.format('%d', ARGV[3] - 1)) -- a number would be written with 17 digits
        if kind == 'mutex 1 0 ' then
            return {1, fence, tonumber(ARGV[3])}
        end
        return {1, fence, tonumber(ARGV[3]), '0', 0, 'write'}
    end
end

-- Fast path: one owner holds it alone, and this claim has to wait: as the first, or behind one that is alive.
local limit, address = string.match(plain and there > 0 and options or '', '^1 1 (%d+) (%S+)$', 11)
local taken = address and call('EXISTS', KEYS[5], KEYS[6]) == 0 and call('GET', KEYS[1])
local head, holder, length, flag, rest = string.match(taken and #taken <= 16384 and taken or '',
    '^(%d+ (%S+) (%d+) %d+ )([01])( %S+ %l+ %d+ .*)$')
if holder and holder ~= ARGV[1] then
    local left = call('PTTL', KEYS[1]) + 1
    local first = call('LRANGE', KEYS[3], 0, 0)[1]
    local kept = call('HMGET', KEYS[4], ':closed', ':doors', ':grant', ARGV[1], first or '')
    local time = call('TIME')
    local wall, since = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
    local ms, ahead = math.floor(wall / 1000), 0
    if first then
        local until_ms, ttl = string.match(kept[5] or '', '^(%d+) waiting [01] %-?%d+ (%d+) ')
        local patience = math.min(tonumber(ttl or '0'), 3000)
        local silent = ms - (until_ms or 0) + 1 + 10 * patience -- since its last beat
        ahead = silent >= 0 and silent <= patience and 1
    end
    if ahead and left > 0 and left <= tonumber(length) and not (kept[1] or kept[2] or kept[3] or kept[4])
        and floor >= 0 and floor <= 9007112854740992 and floor <= wall + 315619200000000 then
        local lasts = 1 + 10 * math.min(tonumber(ARGV[3]), 3000)
        call('RPUSH', KEYS[3], ARGV[1])
        call('PEXPIRE', KEYS[3], '30000')
        call('HSET', KEYS[4], ARGV[1], string.format('%.0f', ms + lasts) .. ' waiting 0 1 ' .. ARGV[3] .. ' ' .. ARGV[2] .. ' '
            .. since .. ' 0 ' .. string.sub(options, 1, 5) .. ' 1 ' .. limit .. ' ' .. address .. ' '
            .. string.match(ARGV[4], ' (%S+) %l+$') .. ' ' .. ARGV[6])
        if call('PTTL', KEYS[4]) < lasts then
            call('PEXPIRE', KEYS[4], lasts + 60000) -- more than needed, so that the next ones need not do it
        end
        if flag == '0' then
            call('SET', KEYS[1], head .. '1' .. rest, 'KEEPTTL')
        end
        return {2, ahead, left, holder, address ~= '-' and 1 or 0, 0}
    end
end

-- include _state

local rule, beat, delay, enqueue, permits, limit, address = string.match(options,
    '^(.+) (%-?%d+) (%d+) ([01]) (%d+) (%d+) (%S+)$')
local one = {owner = ARGV[1], floor = ARGV[2], ttl = ARGV[3], beat = beat, rule = rule, permits = permits, limit = limit,
             address = address, holder_address = string.match(ARGV[4], ' (%S+) %l+$'), delay = delay, meta = ARGV[6],
             repeated = tonumber(beat) > 1 and '1' or '0'}

-- include _sharing

-- A shared grant beside those of the mark: latest, and of permits also soonest, limit, taken. Whether one of them has
-- expired does not matter to readers; an expired permit may have left its slots.
local function share(latest, soonest, limit, taken)
    local expires, slots, rest, other = ms + one.ttl, '0', '', 0
    local stored, stored_until
    if one.rule == 'semaphore' then
        local permits, own = tonumber(one.permits), tonumber(one.limit)
        stored_until, stored = string.match(call('HGET', MORE, ':limit') or '', '^(%d+) (%d+)$')
        stored = whole(stored_until) and tonumber(stored_until) > ms and whole(stored) or nil
        local _, count = string.gsub(taken, '1', '1')
        if soonest <= ms or count + permits > (stored or own) or not (stored or limit == own) then
            return nil
        end
        slots, taken = take(permits, taken)
        rest = ' ' .. text(math.min(soonest, expires)) .. ' ' .. (limit == own and one.limit or '0') .. ' ' .. taken
        other = stored and stored ~= own and stored or 0
    end
    local grant = seat(one, mint(floor), slots)
    if stored then -- it is kept for as long as it is used
        call('HSET', MORE, ':limit', text(ms + 30 * DAY_MS) .. ' ' .. text(stored))
        stretch(MORE, ms + 30 * DAY_MS)
    end
    mark(one.rule, math.max(latest, expires), rest)
    return granted(grant, other)
end

-- Fast path: it is only held by others that share it.
if there == 0 and SHARED[one.rule] then
    read_clock()
    last = whole(call('GET', FENCE)) or 0
    local reply = not wrong_floor(floor) and share(0, ms + one.ttl, tonumber(one.limit), '')
    if reply then
        return reply
    end
elseif there == 2 and SHARED[one.rule] and call('EXISTS', OWNER, HOLDERS) == 2 then
    local taken = call('GET', OWNER)
    local rule, latest, rest = string.match(#taken <= MOST_BYTES and taken or '', '^:(%l+) (%d+)(.*)$')
    last = rule == one.rule and whole(latest) and whole(call('GET', FENCE))
    if last and not call('HGET', HOLDERS, one.owner) then
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
    local mine = grant_of(one.owner)
    if mine then
        if one.repeated == '1' and mine.repeated == '0' and mine.fence ~= '0' then
            mine.repeated = '1'
            probe_write()
            write_grant(mine)
        end
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
        local again = one.repeated == '1' and waiting.repeated == '0'
        waiting.repeated = again and '1' or waiting.repeated
        if record_beat(waiting, one.beat, floor) then
            hand_on(one.owner)
        elseif again then
            write_waiter(waiting)
        end
        return standing(one.owner, waiting)
    end
    local slots = door == 0 and fits(one)
    if slots and queue_is_empty() then
        return granted(grant_to(one, mint(floor), slots), other_limit(one))
    end
    if enqueue == '0' then -- wait=0 never stays in the queue
        tell_holder()
        return {BUSY, holder(), free_in(), other_limit(one)}
    end
    one.beat_ms, one.since = ms, wall_text
    redis.call('RPUSH', QUEUE, one.owner)
    write_waiter(one)
    raise_flag()
    return standing(one.owner, one)
end)
