-- Publish to an address, and return how many listen there.
--
-- In a Cluster a message goes to every node, but only those who listen at this one are counted: a waiter that is passed
-- over as gone would learn of a grant that it does not have. So it goes to a channel of this node's slots alone, or,
-- where the server has no such channels, only when somebody listens here.
local function tell(address, message)
    local kind = string.sub(address, 14, 18)
    if string.sub(kind, 1, 1) == '{' then
        return redis.pcall('SPUBLISH', address, message) -- an error where the slot of the channel is on another node
    end
    if kind == 'node:' then
        local listening = redis.pcall('PUBSUB', 'NUMSUB', address)
        if listening.err or listening[2] == 0 then
            return listening.err and listening or 0
        end
    end
    return redis.pcall('PUBLISH', address, message)
end
