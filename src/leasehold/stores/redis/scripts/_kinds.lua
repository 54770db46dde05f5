-- What a key of a resource must hold. Asked with commands that are needed anyway: TYPE would be one more to be allowed.

local ASKED = {
    string = function(key) return redis.pcall('GET', key) end,
    list = function(key) return redis.pcall('LRANGE', key, 0, 0) end,
    hash = function(key) return redis.pcall('HLEN', key) end,
}
local KINDS = {owner = 'string', fence = 'string', meta = 'string', limit = 'string', queue = 'list', notes = 'list',
               waiters = 'hash', ended = 'hash', holders = 'hash', watchers = 'hash'}

-- What is wrong with it; nil: nothing, or it is not there.
local function wrong_kind(key)
    local kind = KINDS[string.match(key, '%l+$')]
    local found = ASKED[kind](key)
    if type(found) == 'table' and found.err and string.find(found.err, 'WRONGTYPE', 1, true) then
        return 'is no ' .. kind
    end
end
