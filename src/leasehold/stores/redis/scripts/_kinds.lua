-- The type of each key of a resource. It is tested with commands that are needed anyway: TYPE would be one more to
-- allow.

local READ = {
    string = function(key) return redis.pcall('GET', key) end,
    list = function(key) return redis.pcall('LRANGE', key, 0, 0) end,
    hash = function(key) return redis.pcall('HLEN', key) end,
}
local KINDS = {owner = 'string', fence = 'string', queue = 'list', notes = 'list', more = 'hash', holders = 'hash',
               watchers = 'hash'}

-- What is wrong with it; nil: nothing, or it is not there.
local function wrong_kind(key)
    local kind = KINDS[string.match(key, '%l+$')]
    local found = READ[kind](key)
    if type(found) == 'table' and found.err and string.find(found.err, 'WRONGTYPE', 1, true) then
        return 'is no ' .. kind
    end
end
