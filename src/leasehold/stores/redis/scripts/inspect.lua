-- inspect: read, without a claim. Waiters are listed only on request: the server does nothing else meanwhile.
--
--   ARGV   (nothing) queue(1|0)
--   reply  {VIEW ...}, as in _view

-- include _state

local MOST_READ, MOST_SHOWN = 10000, 500

local function look()
-- include _sharing
-- include _turn
-- include _view
    return turn(function()
        local queue = {}
        if ARGV[2] == '1' then
            local more_of_them = walk(function(one, raw)
                queue[#queue + 1] = one.owner
                queue[#queue + 1] = raw
            end)
            if more_of_them then
                unreadable(QUEUE, 'is too long to be shown to its end')
            end
        end
        return view(queue)
    end)
end

local done, reply = pcall(look)
if done then
    return reply
end

-- include _kinds

-- A key that holds something else hides nothing but what depends on it: each of the others is read by itself.
local strange, taken = {}, redis.pcall('GET', OWNER)
for at = 1, 6 do
    local why = wrong_kind(KEYS[at])
    if why then
        strange[#strange + 1] = {KEYS[at], why, 1}
    end
end
if not strange[1] then
    error(reply, 0)
end
read_clock()

-- include _records

local function unreadable(key, why, blocks)
    strange[#strange + 1] = {key, why, blocks and 1 or 0}
end

local fence = redis.pcall('GET', FENCE)
if type(fence) == 'string' then
    last = whole(fence) or unreadable(FENCE, 'is no number')
end

-- include _notes

local held, queue, places, closed = {}, {}, {}, 0
if type(taken) == 'string' and string.sub(taken, 1, 1) ~= ':' then
    local alone = parse_alone(taken)
    if alone then
        alone.expires = ms + math.min(time_left(), tonumber(alone.ttl))
    end
    held = {listed(alone or outsider(taken))}
end
local count = redis.pcall('HLEN', HOLDERS)
if type(count) == 'number' and count > MOST_READ then
    unreadable(HOLDERS, 'has too many fields', true)
elseif type(count) == 'number' then
    local all, sharing, odd = redis.pcall('HGETALL', HOLDERS), {}, false
    for at = 1, #all, 2 do
        local one = parse_shared(all[at + 1])
        if not one or one.owner ~= all[at] then
            odd = true
        elseif one.expires > ms then
            sharing[#sharing + 1] = one
        end
    end
    table.sort(sharing, function(one, other)
        return one.order < other.order
    end)
    for _, one in ipairs(sharing) do
        held[#held + 1] = listed(one)
    end
    if odd then
        unreadable(HOLDERS, 'has a field that is no grant', true)
    end
end
if ARGV[2] == '1' then
    local owners = redis.pcall('LRANGE', QUEUE, 0, MOST_SHOWN - 1)
    for _, owner in ipairs(owners) do
        local raw = redis.pcall('HGET', MORE, owner)
        if type(raw) == 'string' and parse_waiter(owner, raw) then
            queue[#queue + 1] = owner
            queue[#queue + 1] = raw
        end
    end
end
local kept, limit = redis.pcall('HMGET', MORE, ':closed', ':doors', ':limit'), 0
if kept[1] then
    local until_ms, length = parse_closed(kept[1])
    if until_ms then
        closed = math.max(math.min(until_ms - ms, length), 0)
    else
        unreadable(MORE, 'has a time in :closed that is none', true)
    end
end
if kept[2] then
    local found, odd = parse_doors(kept[2])
    for _, one in ipairs(found) do
        if one.until_ms > ms then
            places[#places + 1] = {one.rule, one.slots, text(one.until_ms), text(one.length)}
        end
    end
    if odd then
        unreadable(MORE, 'has a place in :doors that is none', true)
    end
end
if kept[3] then
    local stored, until_ms = parse_limit(kept[3])
    if not stored then
        unreadable(MORE, 'has a limit that is none')
    end
    limit = stored and until_ms > ms and stored or 0
end
return {VIEW, ms, closed, last or 0, held, queue, read_notes(), places, limit, strange}
