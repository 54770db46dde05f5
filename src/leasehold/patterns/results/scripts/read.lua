-- read: writes nothing, and runs on a replica too.
--
--   KEYS    value
--   reply   as in _foreign and _value

-- include _foreign
-- include _value
