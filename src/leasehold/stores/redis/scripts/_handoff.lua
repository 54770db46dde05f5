-- Part of release: others wait, nothing else is unusual, and the first of them is alive. It is granted without a turn.
    if flag == '1' and redis.call('EXISTS', KEYS[5], KEYS[6]) == 0 then
        local call = redis.call
        local first = call('LRANGE', KEYS[3], 0, 0)[1]
        local kept = call('HMGET', KEYS[4], ':closed', ':doors', ':grant', first or '')
        local usual = not (kept[1] or kept[2] or kept[3])
        if usual and not first then
            call('DEL', KEYS[1])
            return {6, 1}
        end
        local until_ms, beat, ttl, floor, rule, limit, address, holder_address, meta
        if usual and kept[4] and #kept[4] <= 16384 and #first <= 16384 then -- one that claimed once, without a lock-delay
            until_ms, beat, ttl, floor, rule, limit, address, holder_address, meta = string.match(kept[4],
                '^(%d+) waiting 0 (%-?%d+) (%d+) (%d+) %d+ 0 (%l+) 1 (%d%d?%d?%d?) (lock:v1:push:%S+) (%S+) ?(.*)$')
        end
        local last = until_ms and call('GET', KEYS[2]) or ''
        if (rule == 'mutex' or rule == 'write') and #floor <= 16 and #last <= 16 and string.find(last, '^%d+$')
            and #until_ms <= 16 and #beat <= 17 and #ttl <= 16 and ttl + 0 > 1 and string.find(first, '^[^:%s]%S*$') then
            local time = call('TIME')
            local wall, since = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
            local ms, patience = math.floor(wall / 1000), math.min(tonumber(ttl), 3000)
            local silent = ms - until_ms + 1 + 10 * patience
            local lowest = math.max(floor, last, fence) + 1
            local top = math.max(wall, lowest) -- of the fences that it brings (mint, in _state)
            local minted = math.max(top - math.max(limit, 1) + 1, lowest)
            if silent >= 0 and silent <= patience and top < 9007112854740992 then
                local written = string.format('%.0f', minted)
                call('HDEL', KEYS[4], '') -- a server that refuses writes does so before a push is sent
-- include _publish
                local brings = top > minted and '+' .. string.format('%d', top - minted) or ''
                local receivers = tell(address, 'granted' .. brings .. ' ' .. written .. ' ' .. beat .. ' ' .. ttl .. ' 0 '
                    .. first .. ' ' .. string.sub(KEYS[1], 10, -8))
                if type(receivers) == 'number' and receivers > 0 then
                    call('LREM', KEYS[3], 1, first)
                    call('HDEL', KEYS[4], first)
                    call('SET', KEYS[2], string.format('%.0f', top), 'PX',
                        string.format('%.0f', math.ceil(top / 1000) + 86399999 - ms))
                    call('SET', KEYS[1], written .. ' ' .. first .. ' ' .. ttl .. ' 0 1 ' .. holder_address .. ' ' .. rule .. ' '
                        .. since .. ' ' .. meta, 'PX', ttl - 1)
                    return {6, 1}
                end
            end
        end
    end
