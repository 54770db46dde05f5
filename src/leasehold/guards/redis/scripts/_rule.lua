-- The guard rule: who may go on. Every script begins with this, and what comes after it is not run for a stale owner.
--
--   KEYS    ... record                     the last one is ours and is taken away: the rest begins at 1, as it should
--   ARGV    ... keep_ms shared owner fence the last four likewise. keep_ms 0: for ever; shared 1: remember nothing;
--                                          owner: a digest, or - when it is not known
--   record  a string, "<fence> <owner>": the highest fence that was presented, and by whom
--   reply   {0 fence}: refused, because of this fence. Nothing was changed.
--           error FOREIGNRECORD: something else is at the record's key. Nothing was accepted.
--
-- Fences are compared as text, the longer is the higher: as numbers they would lose digits above 2^53. The record is
-- written even when it does not change, and before anything else: a replica, and a server without memory, then refuse
-- the whole script, in place of nothing but the first write of what comes after it. All this is put on one line in
-- front of somebody's own script, so that the numbers of its lines are right: hence no comments below.

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
