-- scan: one page of the resources that are held, waited for or closed, or that have notes. It changes nothing.
--
--   ARGV   cursor match
--   reply  {PAGE cursor {name ...}}; the cursor 0 begins, and ends. A name may come on several pages

-- 500 keys at most: the server does nothing else meanwhile.
local PAGE, ROUNDS, COUNT, ENOUGH = 13, 2, 250, 200
local time = redis.call('TIME')
local wall = time[1] * 1000000 + time[2]
local ms = math.floor(wall / 1000)

-- What one key tells of its resource. Whoever put something else there is passed over: hence pcall.
local tells = {}

tells.owner = function(key)
    local owner = redis.pcall('GET', key)
    return type(owner) == 'string' and string.sub(owner, 1, 1) ~= ':' -- those who share have a key of their own
end

tells.queue = function(key, prefix)
    local at = 0
    while true do
        local owners = redis.pcall('LRANGE', key, at, at + 31)
        if #owners == 0 then
            return false
        end
        for _, raw in ipairs(redis.pcall('HMGET', prefix .. 'waiters', unpack(owners))) do
            local beat_ms, ttl = string.match(raw or '', '^%-?%d+ (%d+) (%d+) ')
            if beat_ms and ms - beat_ms <= 10 * math.min(tonumber(ttl), 3000) then -- not forgotten
                return true
            end
        end
        at = at + 32
    end
end

-- When a lease is over, and its door is open again.
local function ends(raw)
    local expires, closed, delay = string.match(type(raw) == 'string' and raw or '',
        '^%d+ %d+ (%d+) %d+ %d+ (%d+) (%d+) ')
    if expires then
        return tonumber(expires), math.max(tonumber(closed), expires + delay)
    end
    return 0, 0
end

-- The door of a lease that nobody has seen expire.
tells.meta = function(key)
    local expires, open = ends(redis.pcall('GET', key))
    return expires <= ms and open > ms
end

tells.holders = function(key)
    local all = redis.pcall('HGETALL', key)
    for at = 2, #all, 2 do
        local expires, open = ends(all[at])
        if expires > ms or open > ms then
            return true
        end
    end
end

-- The first number of each is the end of the last of them.
tells.ended = function(key)
    for _, raw in ipairs(redis.pcall('HMGET', key, ':closed', ':doors')) do
        if raw and (tonumber(string.match(raw, '^%d+')) or 0) > ms then
            return true
        end
    end
end

tells.notes = function(key)
    for _, note in ipairs(redis.pcall('LRANGE', key, -20, -1)) do
        if (tonumber(string.match(note, '^%d+')) or 0) + 30 * 86400000000 > wall then
            return true
        end
    end
end

local cursor, names, seen = ARGV[1], {}, {}
for _ = 1, ROUNDS do
    local page = redis.call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', COUNT)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
        local prefix, name, part = string.match(key, '^(lock:v1:{(.+)}:)(%a+)$')
        if name and tells[part] and not seen[name] and tells[part](key, prefix) then
            seen[name] = true
            names[#names + 1] = name
        end
    end
    if cursor == '0' or #names >= ENOUGH then
        break
    end
end
return {PAGE, cursor, names}
