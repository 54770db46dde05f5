-- Comes before the rule of the guard, for the case that the guard's record was evicted or deleted by hand: a value that
-- is still there holds the fence under which it was written.
--
--   KEYS    value ... record
--   ARGV    ... fence
--   reply   {0 fence}: refused, because of this fence. Nothing was changed.

if redis.call('PTTL', KEYS[#KEYS]) == -2 then
    local fence = ARGV[#ARGV]
    local seen = string.match(string.sub(redis.call('GET', KEYS[1]) or '', 1, 128), '^([1-9]%d*) %d+ %d+ %d+ ')
    if seen and #seen < 20 and (#fence < #seen or #fence == #seen and fence < seen) then
        return {0, seen}
    end
end
