-- Publish to an address, and return how many listen there.
--
-- In a Cluster a message goes to every node, but only those who listen at this one are counted: a waiter that is passed
-- over as gone would learn of a grant that it does not have. So it goes to a channel of this node's slots alone, or,
-- where the server has no such channels, only when somebody listens here. The channel that a waiter gave to another node
-- is of a slot there (an error here); who has connected to this one since has a channel here with the same ending.
local function tell(address, message)
    local kind = string.sub(address, 14, 18)
    if string.sub(kind, 1, 1) == '{' then
        local receivers = redis.pcall('SPUBLISH', address, message)
        local ending = type(receivers) == 'table' and string.match(string.sub(address, 14, 64), '^{%d+}(:[%w_%-]+)$')
        local here = ending and redis.pcall('PUBSUB', 'SHARDCHANNELS', 'lock:v1:push:{*}' .. ending)[1]
        return here and redis.pcall('SPUBLISH', here, message) or receivers
    end
    if kind == 'node:' then
        local listening = redis.pcall('PUBSUB', 'NUMSUB', address)
        if listening.err or listening[2] == 0 then
            return listening.err and listening or 0
        end
    end
    return redis.pcall('PUBLISH', address, message)
end
