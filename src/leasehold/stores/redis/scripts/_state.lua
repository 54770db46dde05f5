-- One resource, and how it is written down. Every script begins with this.
--
--   KEYS[1] owner    string  the holder's owner token. Gone: nobody holds
--   KEYS[2] fence    string  the last fence that was given
--   KEYS[3] meta     string  the last grant; outlives its owner until its tombstone and its closed door are over
--                            fence ttl expires renewals since closed delay news ticket owner meta
--   KEYS[4] queue    list    the owners who wait, in order of arrival
--   KEYS[5] waiters  hash    owner -> beat beat_ms ttl floor since delay address news meta
--   KEYS[6] ended    hash    owner -> until fence outcome detail; and ':closed' -> until when nobody is granted
--   KEYS[7] notes    list    what operators did here, the last 20 of the last 30 days: at event fence owner text. For
--                            inspect and evict alone
--
-- Fields are parted by spaces, an empty one is '-', the last may hold spaces. Times are this server's, in ms; `since`
-- and fences count µs. Large numbers are written with %.0f: tostring and .. keep 14 digits, and a fence has 16. What
-- is only passed on stays text. Redis keeps a key through the millisecond that it expires in: hence every `- 1`.

local OWNER, FENCE, META, QUEUE, WAITERS, ENDED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local GRANTED, QUEUED, BUSY, GONE, RENEWED, RELEASED, NOT_YOURS, WITHDRAWN, VIEW, EVICTED, REFUSED, TOLD
    = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local DAY_MS, MAX_FENCE, MAX_AHEAD_US = 86400000, 9007112854740992, 315619200000000

local holder, grant, last, ms, wall, wall_text

local function text(number)
    return string.format('%.0f', number)
end

local function look_at_clock()
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

local function write_grant()
    local ttl = tonumber(grant.ttl)
    local left = grant.expires - ms
    local over = math.max(left + keep(ttl), left + grant.delay, grant.closed - ms)
    redis.call('SET', META, grant.fence .. ' ' .. grant.ttl .. ' ' .. text(grant.expires) .. ' ' .. grant.renewals .. ' '
        .. grant.since .. ' ' .. grant.closed .. ' ' .. grant.delay .. ' ' .. grant.news .. ' ' .. grant.ticket .. ' '
        .. grant.owner .. ' ' .. grant.meta, 'PX', string.format('%d', over - 1))
end

-- The only place where a grant comes into being.
local function seat(owner, fence, ttl, delay, news, meta)
    holder = owner
    grant = {owner = owner, fence = write_fence(fence), ttl = ttl, expires = ms + ttl, renewals = '0',
             since = wall_text, closed = '0', delay = delay, news = news, ticket = '-', meta = meta}
    redis.call('SET', OWNER, owner, 'PX', string.format('%d', ttl - 1))
    write_grant()
end
