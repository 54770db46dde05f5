-- scan: one page of the resources that are held, waited for or closed, or that have notes. It changes nothing.
--
--   ARGV   cursor match
--   reply  {PAGE cursor {name ...} withheld}; the cursor 0 begins, and ends. A name may come on several pages. withheld
--          is 1 when this user may not read some of the keys: what these show is not listed

-- 500 keys at most: the server does nothing else meanwhile.
local PAGE, ROUNDS, COUNT, ENOUGH, KEY_BYTES, MOST_STEPS, NUMBER = 13, 2, 250, 200, 1024, 64, 17
local time = redis.call('TIME')
local wall = time[1] * 1000000 + time[2]
local ms = math.floor(wall / 1000)

-- include _bounds
-- include _records

-- What one key shows of its resource. One that cannot be read is listed: inspecting it shows why. Hence pcall.
local shows = {}

-- How many holders, places in queues and closed places one page reads. The others are listed without being read.
local left = 10000

local function affords(count)
    left = left - count
    return left >= 0
end

-- Another error is not about the record: this user may not read it.
local withheld = 0

local function wrong(reply)
    if type(reply) ~= 'table' or reply.err == nil then
        return false
    end
    if string.find(reply.err, 'WRONGTYPE', 1, true) then
        return true
    end
    withheld = 1
    return false
end

-- True for a record that has not expired, or that cannot be read.
local function lasts(raw, until_now)
    local number = string.match(string.sub(raw, 1, NUMBER), '^%d+')
    return not number or tonumber(number) > until_now
end

shows.owner = function(key)
    local owner = redis.pcall('GET', key)
    return wrong(owner) or type(owner) == 'string' and string.sub(owner, 1, 1) ~= ':' -- shared: another key
end

shows.queue = function(key, prefix)
    for at = 0, MOST_STEPS * 32, 32 do
        if not affords(32) then
            return true
        end
        local owners = redis.pcall('LRANGE', key, at, at + 31)
        if #owners == 0 then
            return wrong(owners)
        end
        for _, raw in ipairs(redis.pcall('HMGET', prefix .. 'more', unpack(owners))) do
            local until_ms = string.match(string.sub(raw or '', 1, 2 * NUMBER), '^(%d+) waiting ')
            if until_ms and tonumber(until_ms) > ms then -- not forgotten
                return true
            end
        end
    end
    return true -- there are more of them
end

-- When a lease is over, and its door is open again.
local function ends(one)
    return one.expires, math.max(tonumber(one.closed), one.expires + one.delay)
end

shows.holders = function(key)
    local count = redis.pcall('HLEN', key)
    if type(count) ~= 'number' or not affords(count) then
        return type(count) == 'number' or wrong(count)
    end
    local all = redis.pcall('HGETALL', key)
    for at = 1, #all, 2 do
        local one = parse_shared(all[at + 1])
        if not one or one.owner ~= all[at] or math.max(ends(one)) > ms then
            return true
        end
    end
end

shows.more = function(key)
    local all = redis.pcall('HMGET', key, ':closed', ':doors', ':grant', ':limit')
    if all.err then
        return wrong(all)
    end
    local closed, doors, grant, limit = unpack(all, 1, 4)
    local special = grant and parse_special(grant)
    if grant and not special or limit and not parse_limit(limit) then
        return true
    end
    if special then -- the door of a lease that has expired without a turn since
        local expires, open = ends(special)
        if expires <= ms and open > ms then
            return true
        end
    end
    if closed and (parse_closed(closed) or math.huge) > ms then
        return true
    end
    if not doors or not affords(math.ceil(#doors / 32)) then
        return doors and true
    end
    local found, strange = parse_doors(doors)
    for _, one in ipairs(found) do
        strange = strange or one.until_ms > ms
    end
    return strange
end

shows.notes = function(key)
    local all = redis.pcall('LRANGE', key, -20, -1)
    for _, note in ipairs(all) do
        if lasts(note, wall - 30 * 86400000000) then
            return true
        end
    end
    return wrong(all)
end

shows.fence = function(key)
    local raw = redis.pcall('GET', key)
    return wrong(raw) or type(raw) == 'string' and not whole(raw)
end

shows.watchers = function(key)
    return wrong(redis.pcall('HLEN', key))
end

local cursor, names, seen = ARGV[1], {}, {}
for _ = 1, ROUNDS do
    local page = redis.call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', COUNT)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
        local prefix, name, part = string.match(#key <= KEY_BYTES and key or '', '^(lock:v1:{(.+)}:)(%a+)$')
        if name and shows[part] and not seen[name] and shows[part](key, prefix) then
            seen[name] = true
            names[#names + 1] = name
        end
    end
    if cursor == '0' or #names >= ENOUGH then
        break
    end
end
return {PAGE, cursor, names, withheld}
