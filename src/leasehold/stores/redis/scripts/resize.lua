-- resize: set how many permits a semaphore has, whatever its claims say. No holder loses one by it.
--
--   ARGV   (nothing) limit
--   reply  {RESIZED before}: what was stored, or 0

-- include _state
-- include _sharing
-- include _turn

return turn(function()
    local before = limit_of({limit = 0})
    keep_limit(tonumber(ARGV[2]))
    freed = true
    return {RESIZED, before}
end)
