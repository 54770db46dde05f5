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
    redis.call('HLEN', WAITERS) -- it may be no hash, which only a waiter would notice
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
for at = 1, 9 do
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

local function number_at(key)
    local raw = redis.pcall('GET', key)
    if type(raw) == 'string' then
        return whole(raw) or unreadable(key, 'is no number') or 0
    end
    return 0
end

-- include _notes

local held, queue, places, closed = {}, {}, {}, 0
if type(taken) == 'string' and string.sub(taken, 1, 1) ~= ':' then
    local meta = redis.pcall('GET', META)
    local alone = type(meta) == 'string' and parse_grant(meta, false)
    held = {listed(alone and alone.owner == taken and alone or outsider(taken))}
end
local count = redis.pcall('HLEN', HOLDERS)
if type(count) == 'number' and count > MOST_READ then
    unreadable(HOLDERS, 'has too many fields', true)
elseif type(count) == 'number' then
    local all, sharing, odd = redis.pcall('HGETALL', HOLDERS), {}, false
    for at = 1, #all, 2 do
        local one = parse_grant(all[at + 1], true)
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
        local raw = redis.pcall('HGET', WAITERS, owner)
        if type(raw) == 'string' and read_waiter(owner, raw) then
            queue[#queue + 1] = owner
            queue[#queue + 1] = raw
        end
    end
end
local ended = redis.pcall('HMGET', ENDED, ':closed', ':doors')
if ended[1] then
    local until_ms, length = parse_closed(ended[1])
    if until_ms then
        closed = math.max(math.min(until_ms - ms, length), 0)
    else
        unreadable(ENDED, 'has a time in :closed that is none', true)
    end
end
if ended[2] then
    local found, odd = parse_doors(ended[2])
    for _, one in ipairs(found) do
        if one.until_ms > ms then
            places[#places + 1] = {one.rule, one.slots, text(one.until_ms), text(one.length)}
        end
    end
    if odd then
        unreadable(ENDED, 'has a place in :doors that is none', true)
    end
end
return {VIEW, ms, closed, number_at(FENCE), held, queue, read_notes(), places, number_at(LIMIT), strange}
