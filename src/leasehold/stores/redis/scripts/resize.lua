-- resize: set how many permits a semaphore has, whatever its claims say. No holder loses one by it.
--
--   ARGV   (nothing) limit
--   reply  {RESIZED before}: what was stored, or 0

-- include _state
-- include _sharing
-- include _turn

return turn(function()
    local before = limit_of({limit = 0})
    keep_limit(ARGV[2])
    more, freed = true, true
    return {RESIZED, before}
end)
