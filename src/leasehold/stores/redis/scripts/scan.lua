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
    return type(redis.pcall('GET', key)) == 'string'
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

-- The door of a lease that nobody has seen expire.
tells.meta = function(key)
    local raw = redis.pcall('GET', key)
    local expires, closed, delay = string.match(type(raw) == 'string' and raw or '',
        '^%d+ %d+ (%d+) %d+ %d+ (%d+) (%d+) ')
    return expires and expires + 0 <= ms and math.max(tonumber(closed), expires + delay) > ms
end

tells.ended = function(key)
    local closed = redis.pcall('HGET', key, ':closed')
    return type(closed) == 'string' and tonumber(closed) > ms
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
