-- leaks: one page of the keys, of any program, that match and have no TTL: what they lock stays locked. It changes
-- nothing.
--
--   ARGV   cursor match
--   reply  {PAGE cursor {key ...}}; the cursor 0 begins, and ends. A key may come on several pages

local PAGE, ROUNDS, COUNT, ENOUGH = 13, 2, 250, 200
local cursor, keys = ARGV[1], {}
for _ = 1, ROUNDS do
    local page = redis.call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', COUNT)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
        if redis.call('PTTL', key) == -1 then
            keys[#keys + 1] = key
        end
    end
    if cursor == '0' or #keys >= ENOUGH then
        break
    end
end
return {PAGE, cursor, keys}
