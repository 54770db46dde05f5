-- claim: ask for a place. Creates; a repeated one is told what the first one got.
--
--   ARGV   owner floor ttl_ms beat enqueue(1|0) rule address news delay_ms meta
--   reply  {GRANTED fence remaining_ms}  {QUEUED ahead free_in_ms holder pushable(1|0)}  {BUSY holder retry_in_ms}
--          {GONE outcome}  {REFUSED rule|floor}: there is no such rule, or the floor is out of bounds

-- include _state

local owner, floor, ttl, beat, enqueue = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local rule, address, news, delay, meta = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]

-- Mostly nobody is there.
if rule == 'mutex' and redis.call('EXISTS', OWNER, META, QUEUE, ENDED) == 0 then
    look_at_clock()
    if wrong_floor(floor) then
        return {REFUSED, 'floor'}
    end
    last = tonumber(redis.call('GET', FENCE) or 0)
    seat(owner, mint(floor), ttl, delay, news, meta)
    return {GRANTED, last, tonumber(ttl)}
end

-- include _turn

if rule ~= 'mutex' then
    return {REFUSED, 'rule'}
end
if wrong_floor(floor) then
    return {REFUSED, 'floor'}
end
if holder == owner then
    return standing(owner)
end
local known = tombstone(owner)
if known then -- it had its one grant, or its sender gave up before this arrived
    return {GONE, known.outcome}
end
local one = waiter(owner)
if one then
    if hear(one, beat, floor) then
        hand_on(owner)
    end
    return standing(owner, one)
end
if not holder and door == 0 and ahead_of(owner) == 0 then
    seat(owner, mint(floor), ttl, delay, news, meta)
    return {GRANTED, last, tonumber(ttl)}
end
if enqueue == '0' then -- wait=0 never stays in the queue
    return {BUSY, holder or '', free_in()}
end
one = {owner = owner, beat = beat, beat_ms = ms, ttl = ttl, floor = ARGV[2], since = wall_text, delay = delay,
       address = address, news = news, meta = meta}
redis.call('RPUSH', QUEUE, owner)
write_waiter(one)
return standing(owner, one)
