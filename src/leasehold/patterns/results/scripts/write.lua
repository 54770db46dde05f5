-- write: the rule has accepted the fence; the value is written, or deleted.
--
--   KEYS    value                           and the record, which the rule has removed
--   ARGV    keep_ms fence length text       without length and text: delete; then what the rule takes
--   value   a string, "<fence> <written, in microseconds since 1970> <keep_ms> <length> <text>"; length in characters,
--           which shows when a client decodes it wrongly
--   reply   {1}

if not ARGV[4] then
    redis.call('DEL', KEYS[1])
    return {1}
end
local time = redis.call('TIME')
local written = time[1] .. string.format('%06d', time[2])
local value = table.concat({ARGV[2], written, ARGV[1], ARGV[3], ARGV[4]}, ' ')
redis.call('SET', KEYS[1], value, 'PX', ARGV[1])
return {1}
