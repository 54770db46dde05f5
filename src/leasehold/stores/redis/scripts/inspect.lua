-- inspect: look, without a claim. Who waits is listed only when that is wanted: the server does nothing else meanwhile.
--
--   ARGV   (nothing) queue(1|0)
--   reply  {VIEW ...}, as _view says

-- include _state
-- include _sharing
-- include _turn
-- include _view

return turn(function()
    local queue = {}
    if ARGV[2] == '1' then
        walk(function(one, raw)
            queue[#queue + 1] = one.owner
            queue[#queue + 1] = raw
        end)
    end
    return view(queue)
end)
