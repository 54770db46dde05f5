-- watch: read, and get a push at that address for every change of holders, for as long as this is repeated every 30 s.
--
--   ARGV   owner address
--   reply  {VIEW ...}, as in _view, without the waiters

-- include _state
-- include _sharing
-- include _turn
-- include _view

return turn(function()
    redis.call('HSET', WATCHERS, ARGV[1], text(ms) .. ' ' .. ARGV[2])
    redis.call('PEXPIRE', WATCHERS, WATCHED)
    raise_flag()
    return view({})
end)
