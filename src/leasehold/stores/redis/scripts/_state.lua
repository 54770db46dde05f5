-- One resource, and how it is stored. Every script that takes a turn begins with this.
--
--   KEYS[1]  owner     string  the grant of an owner that holds alone, for as long as it does:
--                              fence owner ttl number flag address rule since meta
--                              number: of the last renewal that wrote this; a plain renewal only sets the TTL anew
--                              flag: 0 plain; 1 others wait or watch, so a release has more to do; 2 there is a
--                              ':grant'; 3, 4: as 1, 2, and the holder gets a push when the next claim has to wait
--                              While several share it a mark, so that a program that knows only this key keeps out as
--                              well: ':read latest', or ':semaphore latest soonest limit taken': their last end, no
--                              later than their first one, the limit that all go by or 0, and 1 or 0 for each slot.
--                              Anything else is a holder that only uses SET NX PX
--   KEYS[2]  fence     string  the last fence that was given
--   KEYS[3]  queue     list    the owners who wait, in order of arrival
--   KEYS[4]  more      hash    what is rare. Each value begins with the time from which it may be deleted
--                              owner    -> until waiting repeated beat ttl floor since delay rule permits limit
--                                          address holder_address meta
--                              owner    -> until outcome fence detail: a tombstone
--                              ':grant' -> until fence ttl expires closed delay repeated ticket owner: of the last
--                                          grant to one owner alone, if it is remembered after its end
--                              ':closed' -> until length: there is no grant until then, and how far ahead that was
--                              ':doors' -> until rule:slots:until:length ...: places that are kept free
--                              ':limit' -> until limit: of a semaphore that was resized
--   KEYS[5]  holders   hash    owner -> the grant of a reader, or of permits:
--                              fence ttl expires number since closed delay repeated rule limit slots address ticket
--                              owner meta
--   KEYS[6]  watchers  hash    owner -> beat_ms address: they get a push for every change of holders
--   KEYS[7]  notes     list    what operators did here, the last 20 of the last 30 days: at event fence owner text. For
--                              inspect, watch, evict and revoke alone
--
-- Fields are separated by spaces, an empty one is '-', the last may hold spaces; slots are separated by commas. Times
-- are this server's, in ms; `since` and fences count µs. Large numbers are written with %.0f: tostring and .. keep 14
-- digits, and a fence has 16. What is only passed on stays text. Redis keeps a key through the millisecond that it
-- expires in: hence every `- 1`.

local OWNER, FENCE, QUEUE, MORE, HOLDERS, WATCHERS = unpack(KEYS)
local GRANTED, QUEUED, BUSY, GONE, RENEWED, RELEASED, NOT_YOURS, WITHDRAWN, VIEW, EVICTED, REFUSED, TOLD, RESIZED
    = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14
local DAY_MS, MAX_FENCE, MAX_AHEAD_US = 86400000, 9007112854740992, 315619200000000
local SLACK_MS = 60000 -- the key of shared grants lives longer by this, so that few claims have to prolong it

-- include _bounds

local grants = {} -- all that hold, in the order of their fences
local last, ms, wall, wall_text, holders_end
local special -- the content of ':grant', if there is one

local function text(number)
    return string.format('%.0f', number)
end

local function read_clock()
    local time = redis.call('TIME')
    wall = time[1] * 1000000 + time[2]
    wall_text = time[1] .. string.sub('00000' .. time[2], -6)
    ms = math.floor(wall / 1000)
end

local function wrong_floor(floor)
    return floor < 0 or floor > MAX_FENCE or floor > wall + MAX_AHEAD_US
end

-- How long an ended owner is remembered (policy.tombstone_ms).
local function keep(ttl)
    return math.max(ttl, 60000)
end

-- The first and the last of up to so many fences (_core/turn.py).
local function mint(floor, count)
    local lowest = math.max(floor, last) + 1
    local top = math.max(wall, lowest)
    return last > 0 and math.max(top - (count or 1) + 1, lowest) or top, top
end

-- It may be forgotten a day after max(now, fence): then no clock is behind it any more.
local function write_fence(fence)
    last = fence
    if fence == wall then
        redis.call('SET', FENCE, wall_text, 'PX', '86399999')
        return wall_text
    end
    local written = text(fence)
    redis.call('SET', FENCE, written, 'PX', text(math.ceil(fence / 1000) + DAY_MS - 1 - ms))
    return written
end

-- Let a key live at least until then.
local function stretch(key, until_ms)
    if redis.call('PTTL', key) < until_ms - ms then
        redis.call('PEXPIREAT', key, text(until_ms))
    end
end

-- True for a grant that is remembered after its end (_core/types.py).
local function outlives_its_end(one)
    return one.repeated == '1' or one.delay ~= '0' or one.closed ~= '0' or one.ticket ~= '-'
end

-- Until when its record, or that of its end, is needed.
local function needed_until(one)
    return math.max(one.expires + keep(tonumber(one.ttl)), one.expires + one.delay, tonumber(one.closed))
end

local function write_alone(one)
    local remembered = outlives_its_end(one)
    one.flag = remembered and (one.tell and '4' or '2') or one.tell and '3' or one.flag == '0' and '0' or '1'
    local record = one.fence .. ' ' .. one.owner .. ' ' .. one.ttl .. ' ' .. one.number .. ' ' .. one.flag .. ' '
        .. one.holder_address .. ' ' .. one.rule .. ' ' .. one.since .. ' ' .. one.meta
    local left = one.expires - ms - 1
    if left > 0 then
        redis.call('SET', OWNER, record, 'PX', string.format('%d', left))
    else -- in its last millisecond, for which there is no PX: the end of the key is that of the lease already
        redis.call('SET', OWNER, record, 'KEEPTTL')
        if redis.call('PTTL', OWNER) == -1 then
            redis.call('PEXPIRE', OWNER, 1)
        end
    end
    if remembered then
        local needed = needed_until(one)
        special = text(needed) .. ' ' .. one.fence .. ' ' .. one.ttl .. ' ' .. text(one.expires) .. ' ' .. one.closed .. ' '
            .. one.delay .. ' ' .. one.repeated .. ' ' .. one.ticket .. ' ' .. one.owner
        redis.call('HSET', MORE, ':grant', special)
        stretch(MORE, needed)
    elseif special then
        special = nil
        redis.call('HDEL', MORE, ':grant')
    end
end

local function write_shared(one)
    redis.call('HSET', HOLDERS, one.owner, one.fence .. ' ' .. one.ttl .. ' ' .. text(one.expires) .. ' ' .. one.number
        .. ' ' .. one.since .. ' ' .. one.closed .. ' ' .. one.delay .. ' ' .. one.repeated .. ' ' .. one.rule .. ' '
        .. one.limit .. ' ' .. one.slots .. ' ' .. one.holder_address .. ' ' .. one.ticket .. ' ' .. one.owner .. ' '
        .. one.meta)
    holders_end = holders_end or ms + redis.call('PTTL', HOLDERS)
    local needed = needed_until(one)
    if needed > holders_end then
        holders_end = needed + SLACK_MS
        redis.call('PEXPIREAT', HOLDERS, text(holders_end))
    end
end

local function write_grant(one)
    if SHARED[one.rule] then
        write_shared(one)
    else
        write_alone(one)
    end
end

-- Every grant but that of the fast path of claim is made here. The mark of shared grants is written at the end of the
-- turn. `top`: the last fence that it brings.
local function seat(one, fence, slots, top)
    local written = write_fence(top or fence)
    local grant = {owner = one.owner, fence = top and text(fence) or written, ttl = one.ttl, expires = ms + one.ttl, number = '0',
                   since = wall_text, closed = one.closed or '0', delay = one.delay, rule = one.rule,
                   limit = one.rule == 'semaphore' and one.limit or '0', slots = slots, repeated = one.repeated,
                   holder_address = one.holder_address, ticket = '-', meta = one.meta}
    grants[#grants + 1] = grant
    write_grant(grant)
    return grant
end

-- A grant as a view shows it.
local function listed(one)
    return {one.owner, one.fence, one.ttl, text(one.expires), one.number, one.since, one.closed, one.delay, one.rule,
            one.limit, one.slots, one.holder_address, one.ticket, one.repeated, one.tell and '1' or '0', one.meta}
end

-- How long the owner's key lives; a key without an end counts as one of a day.
local function time_left()
    local left = redis.call('PTTL', OWNER)
    return left < 0 and DAY_MS or left + 1
end

-- A holder that only uses SET NX PX.
local function outsider(owner)
    local left = time_left()
    return {owner = owner, fence = '0', ttl = string.format('%d', left), expires = ms + left, number = '0', since = '0',
            closed = '0', delay = '0', rule = 'mutex', limit = '0', slots = '0', holder_address = '-', ticket = '-',
            repeated = '0', meta = ''}
end

-- `other`: the limit that others go by, when it is not this one's.
local function granted(grant, other)
    if grant.rule == 'mutex' then
        return {GRANTED, tonumber(grant.fence), grant.expires - ms}
    end
    return {GRANTED, tonumber(grant.fence), grant.expires - ms, grant.slots, other, grant.rule}
end
