-- inspect: look, without a claim. Who waits is listed only when that is wanted: the server does nothing else meanwhile.
--
--   ARGV   (nothing) queue(1|0)
--   reply  {VIEW ...}, as _view says

-- include _state

local function look()
-- include _sharing
-- include _turn
-- include _view
    redis.call('HLEN', WAITERS) -- it may be no hash, which only somebody who waits would notice
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

-- A key that holds something else hides nothing but what depends on it.
local wrong, holders = {}, {}
for at = 1, 9 do
    local why = wrong_kind(KEYS[at])
    if why then
        wrong[#wrong + 1] = {KEYS[at], why, 1}
    end
end
if not wrong[1] then
    error(reply, 0)
end
look_at_clock()
local taken = redis.pcall('GET', OWNER)
if type(taken) == 'string' and string.sub(taken, 1, 1) ~= ':' then
    holders = {listed(outsider(taken))}
end
return {VIEW, ms, 0, 0, holders, {}, {}, {}, 0, wrong}
