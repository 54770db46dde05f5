-- One resource, and how it is stored. Every script begins with this.
--
--   KEYS[1]  owner     string  the owner that holds it alone. Missing: it is free. While several share it a mark, so
--                              that a program that knows only this key keeps out as well: ':read latest', or
--                              ':semaphore latest soonest limit taken': their last end, no later than their first one,
--                              the limit that all go by or 0, and 1 or 0 for each slot
--   KEYS[2]  fence     string  the last fence that was given
--   KEYS[3]  meta      string  the last grant to one owner alone; outlives its owner until its tombstone and its closed
--                              door are over
--                              fence ttl expires renewals since closed delay rule limit slots holder_address ticket
--                              owner meta
--   KEYS[4]  queue     list    the owners who wait, in order of arrival
--   KEYS[5]  waiters   hash    owner -> beat beat_ms ttl floor since delay rule permits limit address holder_address
--                              meta
--   KEYS[6]  ended     hash    owner -> until fence outcome detail; ':closed' -> until when there is no grant, and how
--                              far ahead that was when it was set; ':doors' -> latest rule:slots:until:length
--                              rule:slots:until:length ...: places that are kept free
--   KEYS[7]  holders   hash    owner -> the same as in meta, for shared grants: readers, permits
--   KEYS[8]  limit     string  of a semaphore that was resized
--   KEYS[9]  watchers  hash    owner -> beat_ms address: they get a push for every change of holders
--   KEYS[10] notes     list    what operators did here, the last 20 of the last 30 days: at event fence owner text. For
--                              inspect, watch and evict alone
--
-- Fields are separated by spaces, an empty one is '-', the last may hold spaces; slots are separated by commas. Times
-- are this server's, in ms; `since` and fences count µs. Large numbers are written with %.0f: tostring and .. keep 14
-- digits, and a fence has 16. What is only passed on stays text. Redis keeps a key through the millisecond that it
-- expires in: hence every `- 1`.

local OWNER, FENCE, META, QUEUE, WAITERS, ENDED, HOLDERS, LIMIT, WATCHERS = unpack(KEYS)
local GRANTED, QUEUED, BUSY, GONE, RENEWED, RELEASED, NOT_YOURS, WITHDRAWN, VIEW, EVICTED, REFUSED, TOLD, RESIZED
    = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14
local DAY_MS, MAX_FENCE, MAX_AHEAD_US = 86400000, 9007112854740992, 315619200000000
local SLACK_MS = 60000 -- the key of shared grants lives longer by this, so that few claims have to prolong it

-- include _bounds

local grants = {} -- all that hold, in the order of their fences
local last, ms, wall, wall_text, holders_end

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

local function mint(floor)
    return math.max(wall, floor + 1, last + 1)
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

local function write_grant(one)
    local raw = one.fence .. ' ' .. one.ttl .. ' ' .. text(one.expires) .. ' ' .. one.renewals .. ' ' .. one.since .. ' '
        .. one.closed .. ' ' .. one.delay .. ' ' .. one.rule .. ' ' .. one.limit .. ' ' .. one.slots .. ' '
        .. one.holder_address .. ' ' .. one.ticket .. ' ' .. one.owner .. ' ' .. one.meta
    local left = one.expires - ms
    local over = math.max(left + keep(tonumber(one.ttl)), left + one.delay, one.closed - ms)
    if not SHARED[one.rule] then
        redis.call('SET', META, raw, 'PX', string.format('%d', over - 1))
        return
    end
    redis.call('HSET', HOLDERS, one.owner, raw)
    holders_end = holders_end or ms + redis.call('PTTL', HOLDERS)
    if ms + over > holders_end then
        holders_end = ms + over + SLACK_MS
        redis.call('PEXPIREAT', HOLDERS, text(holders_end))
    end
end

-- The only place where a grant is made. The mark of shared grants is written at the end of the turn.
local function seat(one, fence, slots)
    local grant = {owner = one.owner, fence = write_fence(fence), ttl = one.ttl, expires = ms + one.ttl, renewals = '0',
                   since = wall_text, closed = one.closed or '0', delay = one.delay, rule = one.rule,
                   limit = one.rule == 'semaphore' and one.limit or '0', slots = slots,
                   holder_address = one.holder_address, ticket = '-', meta = one.meta}
    grants[#grants + 1] = grant
    if not SHARED[one.rule] then
        redis.call('SET', OWNER, one.owner, 'PX', string.format('%d', one.ttl - 1))
    end
    write_grant(grant)
    return grant
end

-- A grant as a view shows it.
local function listed(one)
    return {one.owner, one.fence, one.ttl, text(one.expires), one.renewals, one.since, one.closed, one.delay, one.rule,
            one.limit, one.slots, one.holder_address, one.ticket, one.meta}
end

-- A holder that only uses SET NX PX.
local function outsider(owner)
    local left = redis.call('PTTL', OWNER)
    left = left < 0 and DAY_MS or left + 1
    return {owner = owner, fence = '0', ttl = string.format('%d', left), expires = ms + left, renewals = '0', since = '0',
            closed = '0', delay = '0', rule = 'mutex', limit = '0', slots = '0', holder_address = '-', ticket = '-',
            meta = ''}
end

-- `other`: the limit that others go by, when it is not this one's.
local function granted(grant, other)
    if grant.rule == 'mutex' then
        return {GRANTED, tonumber(grant.fence), grant.expires - ms}
    end
    return {GRANTED, tonumber(grant.fence), grant.expires - ms, grant.slots, other, grant.rule}
end
