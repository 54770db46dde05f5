-- The mark of shared grants: the content of the owner's key, as in _state. Comes after that.

-- For as long as any of them is held.
local function mark(rule, latest, rest)
    redis.call('SET', OWNER, ':' .. rule .. ' ' .. text(latest) .. rest, 'PX', text(math.max(latest - 1 - ms, 1)))
end

-- The lowest free slots, and what is taken with them.
local function take(permits, taken)
    local slots, parts, from = {}, {}, 1
    while #slots < permits do
        local free = string.find(taken, '0', from, true) or math.max(#taken + 1, from)
        slots[#slots + 1] = free - 1
        parts[#parts + 1] = string.sub(taken, from, free - 1) .. '1'
        from = free + 1
    end
    return table.concat(slots, ','), table.concat(parts) .. string.sub(taken, from)
end
