-- The guard rule: which owner may continue. Every script begins with it; for a stale owner the rest is not run.
--
--   KEYS    ... record                     the last one is the guard's and is removed, so that the others begin at 1
--   ARGV    ... keep_ms shared owner fence the last four likewise. keep_ms 0: for ever; shared 1: remember nothing;
--                                          owner: a digest, or - when it is not known
--   record  a string, "<fence> <owner>": the highest fence that was presented, and its owner
--   reply   {0 fence}: refused, because of this fence. Nothing was changed.
--           error FOREIGNRECORD: something else is at the record's key. Nothing was accepted.
--
-- Fences are compared as text, and the longer one is the higher: as numbers they would lose digits above 2^53. The
-- record is written even when it does not change, and before anything else: a replica, and a server without memory, then
-- refuse the whole script, and not only the first write of what follows. All this is put on one line in front of a
-- user's own script, so that the numbers of its lines are right: hence no comments below.

do
    local record = table.remove(KEYS)
    local fence = table.remove(ARGV)
    local owner = table.remove(ARGV)
    local shared = table.remove(ARGV)
    local keep = table.remove(ARGV)
    local known = redis.pcall('GET', record)
    if type(known) == 'table' then
        return string.find(known.err, 'WRONGTYPE', 1, true) and {err = 'FOREIGNRECORD'} or known
    end
    if known then
        local seen, whose = string.match(#known <= 1024 and known or '', '^([1-9]%d*) (%S+)$')
        if not seen or #seen > 19 then
            return {err = 'FOREIGNRECORD'}
        end
        if #fence < #seen or #fence == #seen and (fence < seen or fence == seen and owner ~= whose) then
            return {0, seen}
        end
    end
    if shared ~= '1' then
        if keep == '0' then
            redis.call('SET', record, fence .. ' ' .. owner)
        else
            redis.call('SET', record, fence .. ' ' .. owner, 'PX', keep)
        end
    end
end
